"""Jobs by any filter, page by page, each page in bounded time however many jobs there are.

Running and queued jobs (up to some thousands), those of a schedule and the dead are found by an index. All others have
none: it would cost every claim and every outcome. They are looked for from the newest back by the primary key, for
`LOOK_MS` at most; a page says how far that came, and the next one goes on from there. A time of creation is found on
the primary key too, because jobs are numbered as they are created: one whose `created_at` was set by hand more than 15
minutes off is not found by it.

On any connection, like `jobs.reports`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from jobs.connection import Program, Statement, run
from jobs.redaction import mask
from jobs.rows import bounded, rows_of
from jobs.sql import statement

LOOK_MS = 30  # of walking back, after which a page says how far it came
COUNT_LIMIT = 10_000  # a count ends there
MAX_ACTIVE_OF_KEY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """What is not given lets every job pass. `key` is a dedupe or a concurrency key; `until` a moment is before it."""

    id: int | None = None
    status: str | None = None
    kind: str | None = None
    pool: str | None = None
    organization_id: str | None = None
    worker_id: UUID | None = None
    schedule: str | None = None
    key: str | None = None
    created_from: datetime | None = None
    created_until: datetime | None = None
    finished_from: datetime | None = None
    finished_until: datetime | None = None

    def given(self) -> Mapping[str, Any]:
        """What is given, as JSON has it: for statements and for the audit."""
        return {name: _plain(value) for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job. `payload` and `result` are None in a list that was not asked for them.

    The secret fields of the payload are masked; all of its fields, while no worker has declared the kind.
    A `run_after` or `created_at` that no `datetime` can hold, such as infinity, is the earliest or the latest day.
    """

    id: int
    kind: str
    pool: str
    priority: int
    status: str
    payload: Any
    organization_id: str | None
    attempt: int
    claim: int
    max_attempts: int
    timeout: timedelta
    run_after: datetime
    dedupe_key: str | None
    dedupe_active: bool
    concurrency_key: str | None
    worker_id: UUID | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    progress: float | None
    result: Any
    error: Mapping[str, Any] | None
    schedule: str | None
    occurrence: datetime | None
    progress_note: str | None
    blocked: bool
    cancel_requested_at: datetime | None
    kind_paused: bool


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs, newest first. `next_before` is where the next page begins; None: there is nothing more.

    `looked_back_to` is when the job was created that was looked at last. A page may hold fewer jobs than asked for, or
    none, and still have a next one: then the time was over.
    """

    jobs: Sequence[JobRow]
    next_before: int | None
    looked_back_to: datetime | None


@dataclass(frozen=True, slots=True)
class JobCount:
    """`at_least` says that there may be more than `count`: the limit was reached, or the time was over."""

    count: int
    at_least: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The ids of one look, newest first, and where the next begins."""

    ids: Sequence[int]
    next_before: int | None
    looked_back_to: datetime | None


def find_jobs(
    db: Any, wanted: JobFilter, *, before: int | None = None, limit: int = 50, milliseconds: int = LOOK_MS
) -> Any:
    """One page of the jobs that pass: a `JobPage`. The page after it is the one `before` its `next_before`.

    The first page of a `key` has its queued and running jobs too, however long ago they were created: they may be on a
    later page again.
    """
    return run(db, find_page(wanted, before=before, limit=bounded(limit), milliseconds=milliseconds))


def count_matching(db: Any, wanted: JobFilter, *, milliseconds: int = LOOK_MS) -> Any:
    """How many jobs pass, up to `COUNT_LIMIT` and as far as the time allows: a `JobCount`."""
    return run(db, _count(wanted, milliseconds))


def find_page(
    wanted: JobFilter, *, before: int | None, limit: int, milliseconds: int = LOOK_MS, full: bool = False
) -> Program[JobPage]:
    """`find_jobs` as a program."""
    found = yield from look(wanted, before=before, limit=limit, milliseconds=milliseconds)
    ids = set(found.ids)
    if wanted.key is not None and before is None:
        rows = yield Statement(statement("active_of_key"), {"key": wanted.key, "limit": MAX_ACTIVE_OF_KEY})
        active = yield from jobs_by_id([row[0] for row in rows], full=full)
        ids.update(job.id for job in active if _passes(wanted, job))
    jobs = yield from jobs_by_id(sorted(ids), full=full)
    return JobPage(jobs, found.next_before, found.looked_back_to)


def look(wanted: JobFilter, *, before: int | None, limit: int, milliseconds: int) -> Program[Found]:
    """The newest ids below `before` that pass."""
    ((ids, next_before, looked_back_to),) = yield Statement(
        statement("find_jobs"),
        {"filter": json.dumps(wanted.given()), "before": before, "limit": limit, "milliseconds": milliseconds},
    )
    return Found(ids, next_before, looked_back_to)


def jobs_by_id(ids: Sequence[int], *, full: bool = False) -> Program[list[JobRow]]:
    """These jobs, newest first, as far as they exist; payloads and results only with `full`."""
    if not ids:
        return []
    jobs: list[JobRow] = yield from rows_of(JobRow, "jobs_by_id", ids=list(ids), full=full)
    if not (full and jobs):
        return jobs
    rows = yield Statement(statement("secret_paths"), {"kinds": sorted({job.kind for job in jobs})})
    paths: dict[str, Sequence[str] | None] = dict(rows)
    return [replace(job, payload=mask(job.payload, paths.get(job.kind))) for job in jobs]


def _count(wanted: JobFilter, milliseconds: int) -> Program[JobCount]:
    found = yield from look(wanted, before=None, limit=COUNT_LIMIT, milliseconds=milliseconds)
    return JobCount(len(found.ids), at_least=found.next_before is not None)


def _passes(wanted: JobFilter, job: JobRow) -> bool:
    """Whether an active job passes what is not its key."""
    exact = ("id", "status", "kind", "pool", "organization_id", "worker_id", "schedule")
    return (
        all(getattr(wanted, name) in (None, getattr(job, name)) for name in exact)
        and (wanted.created_from is None or job.created_at >= wanted.created_from)
        and (wanted.created_until is None or job.created_at < wanted.created_until)
        and wanted.finished_from is None
        and wanted.finished_until is None
    )


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value) if isinstance(value, UUID) else value
