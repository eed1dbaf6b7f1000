"""The figures of a chaos run, and how they are told."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from tests.chaos.acts import Kill
from tests.chaos.checker import Violation
from tests.chaos.history import History


@dataclass(frozen=True, slots=True)
class Resources:
    """Of the supervisor processes together."""

    processes: int
    open_files: int
    rss_mb: float
    zombies: int

    @classmethod
    def of(cls, pids: Sequence[int]) -> "Resources":
        files, rss, zombies = 0, 0.0, 0
        for pid in pids:
            process = psutil.Process(pid)
            files += process.num_fds()
            rss += process.memory_info().rss / (1 << 20)
            zombies += sum(child.status() == psutil.STATUS_ZOMBIE for child in process.children())
        return cls(len(pids), files, round(rss, 1), zombies)


def figures(history: History, kills: Sequence[Kill], calm_at: float) -> dict[str, Any]:
    """What can be counted in the history."""
    last = {job: changes[-1] for job, changes in history.by_job().items()}
    amid, calm = detection_seconds(history, kills), calm_detection_seconds(history, calm_at)
    return {
        "jobs": len(last),
        "jobs by status": dict(Counter(str(change.new) for change in last.values()).most_common()),
        "claims": sum(1 for _ in history.spans()),
        "attempts by verdict": dict(Counter(attempt.verdict for attempt in history.attempts).most_common()),
        "rescued": sum(attempt.verdict == "worker_lost" for attempt in history.attempts),
        "worker ids": len({lease.worker for lease in history.leases}),
        "occurrences": sum(change.old is None and change.schedule is not None for change in history.changes),
        "pauses": sum(change.paused for change in history.kinds),
        "diary lines": len(history.diary),
        "SIGKILL to verdict amid chaos, ms": _spread(amid),
        "SIGKILL to verdict in calm, ms": _spread(calm),
        "exits by status": dict(Counter(end.status for end in history.exits).most_common()),
    }


def detection_seconds(history: History, kills: Sequence[Kill]) -> list[float]:
    """From the SIGKILL of a child to the commit of its verdict, where nothing else troubled its worker."""
    spans = sorted(history.spans(), key=lambda span: span.began)
    killed = {(a.job, a.claim) for a in history.attempts if a.verdict in ("killed", "oom_killed")}
    found = []
    for kill in kills:
        hit = [span for span in spans if span.job == kill.job and span.began <= kill.at <= (span.ended or kill.at)]
        if hit and hit[-1].ended is not None and (hit[-1].job, hit[-1].claim) in killed:
            found.append(hit[-1].ended - kill.at)
    return sorted(found)


def calm_detection_seconds(history: History, calm_at: float) -> list[float]:
    """The same of children that killed themselves after the drain, from the last line of their diary."""
    spans = {(span.job, span.claim): span for span in history.spans() if span.began > calm_at}
    deaths = [line for line in history.diary if line.event == "die" and (line.job, line.claim) in spans]
    ends = [(line.at, spans[line.job, line.claim].ended) for line in deaths]
    return sorted(ended - at for at, ended in ends if ended is not None)


def _spread(values: Sequence[float]) -> dict[str, Any]:
    return {"n": len(values), "p50": _percentile(values, 0.5), "p99": _percentile(values, 0.99)}


def _percentile(values: Sequence[float], share: float) -> float | None:
    return round(values[min(int(share * len(values)), len(values) - 1)] * 1000, 1) if values else None


def tell(told: Mapping[str, Any], violations: Sequence[Violation], console: Console) -> None:
    """A table of the figures, then every violation, then the verdict."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in told.items():
        shown = ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else str(value)
        table.add_row(name, shown)
    console.print(table)
    for violation in violations[:50]:
        console.print(f"[bold red]VIOLATION[/] {violation}", highlight=False)
    verdict = "[green]0 violations[/]" if not violations else f"[bold red]{len(violations)} violations[/]"
    console.print(f"seed {told['seed']}: {verdict}")
