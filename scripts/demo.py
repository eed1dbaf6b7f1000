"""The demonstration: a worker on an embedded PostgreSQL, documents, agents, a schedule, and a kind that eats memory.

Everything goes the way an operator would go: the worker is its own process, documents go in by `oomph ingest`. It
ends with a table of what happened; the exit status is 0 only if every line of it is true.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from jobs import enqueue_many
from jobs.migrate import migrate
from scripts import samples
from scripts.demo_app import ASK_AGENT, COUNT_WORDS, EAT_MEMORY, Nothing, Question
from supervisor.embedded import EmbeddedServer

ROOT = Path(__file__).parent.parent
OOMPH = str(Path(sys.executable).parent / "oomph")
AGENTS = 40
COUNTS = 20
EATERS = 5
TICKS = 3
SECONDS = 180.0  # for everything; on two cores it takes about thirty
SETTINGS = {
    "WORKER_APP": "scripts.demo_app:app",
    "WORKER_INGEST_MEMORY_MB": "512",
    "WORKER_RETRY_DELAY_SECONDS": "1",
}
WORDS = "claim number fence"  # stand in the project's own documentation and in the samples

Look = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be true at the end, and what was seen."""

    what: str
    seen: str
    is_true: bool


def main() -> int:
    arguments = _arguments()
    console = Console(stderr=arguments.json)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="oomph-demo-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # where root runs this, the server does not run as root and must get in
        with EmbeddedServer(folder / "postgresql") as url:
            migrate(url)
            console.print("PostgreSQL is up and has its tables")
            log = folder / "worker.log"
            with psycopg.connect(url, autocommit=True) as db, _worker(url, folder, log) as worker:
                console.print(f"worker {worker.pid} is ready")
                checks = _show(db, url, folder, arguments, console)
                worker.send_signal(signal.SIGTERM)
                status = worker.wait(60)
            checks.append(Check("the worker ended in order", f"exit status {status}", status == 0))
            if not all(check.is_true for check in checks):
                console.print(log.read_text(errors="replace")[-6000:], markup=False, highlight=False)
    _conclude(checks, time.monotonic() - started, arguments, console)
    return 0 if all(check.is_true for check in checks) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders to ingest instead of the demo's own")
    parser.add_argument("--json", action="store_true", help="print what happened as one JSON object")
    arguments = parser.parse_args()
    for path in arguments.paths:
        if not path.exists():
            parser.error(f"there is no {path}")
    return arguments


def _show(db: Look, url: str, folder: Path, arguments: argparse.Namespace, console: Console) -> list[Check]:
    enqueue_many(db, ASK_AGENT, [Question(text=f"What is {number} good for?") for number in range(AGENTS)])
    enqueue_many(db, COUNT_WORDS, [Question(text="to be or not to be") for _ in range(COUNTS)])
    enqueue_many(db, EAT_MEMORY, [Nothing() for _ in range(EATERS)])
    paths = arguments.paths or [ROOT / "README.md", ROOT / "LICENSE", *_own_documentation(), _make_samples(folder)]
    documents = _ingest(url, folder, paths)
    checks = [_documents_check(documents, expect_failures=not arguments.paths)]
    if not arguments.paths:
        again = _ingest(url, folder, paths[:1])
        one = db.execute("SELECT count(*) FROM background_documents").fetchone()
        same = one == (sum(document["status"] != "REFUSED" for document in documents),) and again[0]["document_id"] in {
            document["document_id"] for document in documents
        }
        checks.append(Check("the same file twice is one document", f"{one[0] if one else 0} documents", same))
        checks.append(_search_check(url, console))
    checks.append(_finished(db, "ask-agent", AGENTS, "agent jobs succeeded"))
    checks.append(_finished(db, "count-words", COUNTS, "system jobs succeeded"))
    checks.append(_pause_check(db))
    checks.append(_schedule_check(db))
    _print_documents(documents, console)
    return checks


def _ingest(url: str, folder: Path, paths: list[Path]) -> list[dict[str, Any]]:
    """`oomph ingest PATH ..`, with its progress bar on standard error."""
    done = subprocess.run(
        [OOMPH, "ingest", "--json", *map(str, paths)],
        env=_environment(url, folder),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    told: list[dict[str, Any]] = json.loads(done.stdout)
    return told


def _documents_check(documents: list[dict[str, Any]], *, expect_failures: bool) -> Check:
    ready = [document for document in documents if document["status"] == "READY"]
    failed = [document for document in documents if document["status"] in ("FAILED", "REFUSED")]
    explained = all(document["message"] for document in failed)
    is_true = len(ready) + len(failed) == len(documents) and bool(ready) and explained
    if expect_failures:
        is_true &= sorted(Path(document["file"]).name for document in failed) == ["broken.docx", "empty.txt"]
    return Check(
        "documents are READY, or failed or refused with a reason",
        f"{len(ready)} ready, {len(failed)} with one",
        is_true,
    )


def _search_check(url: str, console: Console) -> Check:
    done = subprocess.run(
        [OOMPH, "search", WORDS, "--json", "--limit", "20"],
        env={**os.environ, "DATABASE_URL": url},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    hits = json.loads(done.stdout)
    for hit in hits[:5]:
        console.print(f"  found in {hit['filename']}" + (f", page {hit['page']}" if hit["page"] else ""))
    found = any(hit["filename"] == "fences.pdf" and hit["page"] == 2 for hit in hits)
    return Check(f"a search for “{WORDS}” finds page 2 of a PDF", f"{len(hits)} places", found)


def _finished(db: Look, kind: str, expected: int, what: str) -> Check:
    done = _until(lambda: _count(db, "kind = %s AND status = 'succeeded'", kind) >= expected)
    count = _count(db, "kind = %s AND status = 'succeeded'", kind)
    return Check(what, f"{count} of {expected}", done and count == expected)


def _pause_check(db: Look) -> Check:
    _until(
        lambda: (
            db.execute("SELECT 1 FROM background_kinds WHERE kind = 'eat-memory' AND paused_at IS NOT NULL").fetchone()
            is not None
        )
    )
    _until(lambda: not _count(db, "kind = %s AND status = 'running'", "eat-memory"))
    row = db.execute(
        "SELECT kill_streak, paused_by, (SELECT count(*) FROM background_attempts AS a "
        "WHERE a.kind = k.kind AND a.is_kill AND a.verdict = 'memory_exceeded') "
        "FROM background_kinds AS k WHERE kind = 'eat-memory'"
    ).fetchone()
    streak, paused_by, kills = row or (0, None, 0)
    is_true = paused_by == "oomph" and streak == 5 and kills >= 5
    return Check("a kind that ate memory was killed five times, then paused", f"{kills} kills, paused", is_true)


def _schedule_check(db: Look) -> Check:
    ticked = _until(lambda: _count(db, "kind = %s AND status = 'succeeded'", "take-pulse") >= TICKS)
    twice = db.execute(
        "SELECT count(*) FROM (SELECT FROM background_jobs WHERE schedule IS NOT NULL "
        "GROUP BY schedule, occurrence HAVING count(*) > 1) AS twice"
    ).fetchone()
    count = _count(db, "kind = %s AND status = 'succeeded'", "take-pulse")
    return Check("a schedule fired, each occurrence once", f"{count} times", ticked and twice == (0,))


def _count(db: Look, condition: str, kind: str) -> int:
    row = db.execute(f"SELECT count(*) FROM background_jobs WHERE {condition}", [kind]).fetchone()
    return int(row[0]) if row else 0


def _until(look: Callable[[], bool]) -> bool:
    until = time.monotonic() + SECONDS / 3
    while not look():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def _worker(url: str, folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as sink:
        worker = subprocess.Popen([OOMPH, "worker"], env=_environment(url, folder), stdout=sink, stderr=sink)
    try:
        ready = _until(lambda: "ready: worker" in log.read_text(errors="replace") or worker.poll() is not None)
        if not ready or worker.poll() is not None:
            raise SystemExit(f"the worker did not get ready:\n{log.read_text(errors='replace')}")
        yield worker
    finally:
        if worker.poll() is None:
            worker.kill()
        worker.wait()


def _environment(url: str, folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WORKER_")}
    return {
        **inherited,
        **SETTINGS,
        "DATABASE_URL": url,
        "OBJECT_STORE_URL": (folder / "objects").as_uri(),
        "PYTHONPATH": str(ROOT),
    }


def _own_documentation() -> list[Path]:
    return [ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _make_samples(folder: Path) -> Path:
    """Files of many formats, two of which cannot be read."""
    made = folder / "samples"
    made.mkdir()
    fence = "The fence of a job is its id and its claim number. A late outcome changes nothing."
    lease = "A lease is a worker's right to its running jobs until a moment of the database's clock."
    sections = [("The lease", [lease]), ("The fence", [fence])]
    word = samples.docx(sections, table=[["verdict", "charged"], ["killed", "yes"], ["released", "no"]])
    files = {
        "fences.pdf": samples.pdf([["The lease", lease], ["The fence", fence]], title="Leases and fences"),
        "handbook.docx": word,
        "verdicts.xlsx": samples.xlsx({"verdicts": [["verdict", "kill"], ["oom_killed", "yes"], ["timed_out", "no"]]}),
        "talk.pptx": samples.pptx(sections),
        "book.epub": samples.epub("Workers that survive", sections),
        "page.html": samples.html("Back-off", [("Back-off", ["Each attempt waits twice as long."])]),
        "mail.eml": samples.eml("The kind is paused", "Five children were killed in a row. Please have a look."),
        "notes.md": samples.markdown("Notes", [("Streaks", ["A success ends the streak of its kind."])]),
        "plain.txt": b"A paused kind starts nothing; its running jobs finish.\n",
        "broken.docx": word[: len(word) // 2],
        "empty.txt": b"\n",
    }
    for name, content in files.items():
        (made / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return made


def _print_documents(documents: list[dict[str, Any]], console: Console) -> None:
    for document in documents:
        if document["status"] != "READY":
            console.print(f"  {Path(document['file']).name}: {document['message']}", markup=False, highlight=False)


def _conclude(checks: list[Check], seconds: float, arguments: argparse.Namespace, console: Console) -> None:
    if arguments.json:
        done = {"ok": all(check.is_true for check in checks), "seconds": round(seconds, 1)}
        print(json.dumps({**done, "checks": [asdict(check) for check in checks]}, indent=2))
        return
    table = Table(title=f"what happened, in {seconds:.0f} s", title_justify="left")
    for heading in ("", "what", "seen"):
        table.add_column(heading)
    for check in checks:
        table.add_row("[green]yes[/]" if check.is_true else "[bold red]NO[/]", check.what, check.seen)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
