"""Waits for documents, with a bar that shows how many are done and failed, how fast it goes, and the stages."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from supervisor.commands.output import printable

if TYPE_CHECKING:
    import psycopg

    from jobs.documents.reports import Attendance, DocumentRow

LOOK_SECONDS = 0.3
LOOK_AT = 500  # of those that were submitted first, and as many of the rest: to ask of 100,000 takes seconds
UNKNOWN_KIND = "no live worker knows the kind"  # as bury_unknown.sql says it
ALONE_SECONDS = 5.0  # without any worker: one that is being restarted is back by then


def wait_for_documents(connection: "psycopg.Connection[Any]", ids: Sequence[UUID], database: str) -> str | None:
    """Wait until all are READY or FAILED, and return None; or return why waiting has no sense.

    `connection` is in autocommit mode; `database` says how it was named, for the advice.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from jobs.documents.reports import attendance, show_documents

    columns = (
        TextColumn("documents"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed, {task.fields[rate]}/s"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[stages]}"),
    )
    console = Console(stderr=True)
    started = seen_worker = time.monotonic()
    turn = 0
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=len(ids), failed=0, rate="0.0", stages="")
        waiting = list(ids)
        failed = 0
        told: set[str] = set()
        while True:
            asked = _turn_of(waiting, turn)
            turn += 1
            rows: list[DocumentRow] = show_documents(connection, asked)
            failed += sum(row.status == "FAILED" for row in rows)
            ended = set(asked) - {row.id for row in rows if not row.is_settled}  # one that was deleted is done too
            waiting = [each for each in waiting if each not in ended]
            done = len(ids) - len(waiting)
            now = time.monotonic()
            rate = f"{done / max(now - started, LOOK_SECONDS):.1f}"
            bar.update(task, completed=done, failed=failed, rate=rate, stages=_stages(rows))
            if not waiting:
                return None
            if (line := _retried(rows, told)) is not None:
                bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
            present: Attendance = attendance(connection)
            seen_worker = now if present.workers else seen_worker
            running = any(row.is_running for row in rows)
            if trouble := _trouble(present, len(waiting), now - seen_worker, running, database):
                return trouble
            if len(ended) < LOOK_AT:  # else there is more to find at once
                time.sleep(LOOK_SECONDS)


def _turn_of(waiting: Sequence[UUID], turn: int) -> list[UUID]:
    """Which to ask of: the first, whose turn it is to be worked on, and some of the rest, in case those are stuck."""
    rest = waiting[LOOK_AT:]
    start = turn * LOOK_AT % max(len(rest), 1)
    return [*waiting[:LOOK_AT], *rest[start : start + LOOK_AT]]


def _retried(rows: "Sequence[DocumentRow]", told: set[str]) -> str | None:
    """Why documents wait for another attempt: of the first, and each reason once, which is put into `told`."""
    retried = [row for row in rows if row.waits_for_retry]
    if not retried or (reason := printable(retried[0].message or "")) in told:
        return None
    told.add(reason)
    return f"{len(retried)} waiting to be retried: {printable(retried[0].filename)}: {reason}"


def _stages(rows: "Sequence[DocumentRow]") -> str:
    """Where the documents that run are, the one that is furthest in its own words: `2 parsing, 1 embedding (60 %)`."""
    running = [row for row in rows if row.is_running]
    counts = Counter(row.status.lower() for row in running)
    furthest = max((row.progress or 0 for row in running), default=0)
    told = ", ".join(f"{count} {stage}" for stage, count in counts.items())
    told = f"{told} ({furthest:.0%})" if furthest else told
    retried = sum(row.waits_for_retry for row in rows)
    return ", ".join([*filter(None, [told]), *([f"{retried} waiting to be retried"] if retried else [])])


def _trouble(present: "Attendance", left: int, alone: float, running: bool, database: str) -> str | None:
    if present.paused is not None and not running:
        return (
            f"{left} documents wait, but the kind ingest-document is paused: {present.paused}. "
            "`oomph kinds resume ingest-document` lets it run again"
        )
    if alone < ALONE_SECONDS:
        return None
    return f"{left} documents wait, but no live worker ingests documents. They stay queued; {_start_one(database)}"


def nobody_knew(failures: Sequence[str | None], database: str) -> str | None:
    """What to do where documents failed only because the workers that run are those of other apps."""
    count = sum(UNKNOWN_KIND in (message or "") for message in failures)
    if not count:
        return None
    return f"{count} documents failed, because no live worker ingests documents; {_start_one(database)}; then try again"


def _start_one(database: str) -> str:
    option = f" {database}" if database.startswith("--embedded") else ""
    return (
        f"start one with `oomph worker --app jobs.documents.app:app{option}`, in the same folder or with the same "
        "OBJECT_STORE_URL"
    )
