"""Writes what the code knows into `docs/reference/`: commands, verdicts, metrics. `python -m scripts.reference`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from jobs.outcome import Verdict
from supervisor.commands.application import cli
from supervisor.monitor.catalog import CATALOG

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"

MEANINGS = {
    Verdict.SUCCEEDED: "The handler returned.",
    Verdict.FAILED: "The handler raised.",
    Verdict.MEMORY_EXCEEDED: "It met its memory limit: an allocation was refused, or its tree of processes went over.",
    Verdict.OOM_KILLED: "The kernel killed it or a process of it for memory; a counter says so.",
    Verdict.KILLED: "SIGKILL or SIGTERM that nobody here sent.",
    Verdict.CRASHED: "Another signal: SIGSEGV, SIGABRT, SIGBUS, SIGILL, ...",
    Verdict.EXITED: "The process exited with a status, without a word of its end.",
    Verdict.VANISHED: "It exited with status 0, without a word of its end.",
    Verdict.TIMED_OUT: "Over its time; the stack where it stood is stored.",
    Verdict.CANCELLED: "An operator cancelled it.",
    Verdict.WORKER_LOST: "The worker's lease ran out and the worker is gone.",
    Verdict.RELEASED: "The worker ended before the job did.",
    Verdict.LEASE_LOST: "The worker lost its lease and stopped the job.",
    Verdict.SPAWN_FAILED: "No child could be made for it.",
    Verdict.SNOOZED: "The handler asked for another time.",
}


def verdicts() -> str:
    """A table of the verdicts."""
    rows = ["| verdict | when | charged | kill |", "|---|---|---|---|"]
    for verdict in Verdict:
        kill = "yes" if verdict.is_kill else "no, it ends the streak" if verdict.ends_streak else "no"
        if verdict is Verdict.WORKER_LOST:
            kill = "once per dead worker and kind"
        charged = "terminal" if verdict is Verdict.CANCELLED else "yes" if verdict.is_charged else "no"
        rows.append(f"| `{verdict}` | {MEANINGS[verdict]} | {charged} | {kill} |")
    return "\n".join(rows)


def metrics() -> str:
    """A table of the metrics."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in CATALOG:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.name}` | {family.type} | {labels} | {family.help} |")
    return "\n".join(rows)


def commands() -> str:
    """A section for each command."""
    root = typer.main.get_command(cli)
    return "\n\n".join(_section(path, command) for path, command in _leaves("oomph", root))


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
    else:
        for name, child in children.items():
            yield from _leaves(f"{path} {name}", child)


def _section(path: str, command: Any) -> str:
    context = command.context_class(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    records = (parameter.get_help_record(context) for parameter in command.get_params(context))
    rows = [f"| `{option}` | {_escaped(meaning)} |" for option, meaning in filter(None, records)]
    told = "\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n"))
    return "\n".join([f"## {path}", "", f"`{path} {usage}`", "", told, "", "| option | meaning |", "|---|---|", *rows])


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


PAGES = {"cli.md": ("commands", commands), "verdicts.md": ("verdicts", verdicts), "metrics.md": ("metrics", metrics)}


def written(page: str, text: str) -> str:
    """`text` of this page, with what the code says between its two marks."""
    block, make = PAGES[page]
    start, end = f"<!-- {block}, written by scripts/reference.py -->\n", f"<!-- end of {block} -->"
    before, found, rest = text.partition(start)
    if not found or end not in rest:
        raise ValueError(f"{page} lacks its marks {start.strip()} and {end}")
    return f"{before}{start}{make()}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    for name in PAGES:
        path = REFERENCE / name
        path.write_text(written(name, path.read_text()))
