"""What people may look at: jobs with their attempts, kinds, schedules, workers, the audit. Read only.

Like `jobs.control`, on any connection and in the transaction that it has open; await the result where the connection
is asynchronous. Every list is bounded by `limit`, and none counts a table. The fields of a row are the columns of the
tables, plus what is needed to read them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from jobs.connection import Program, Row, Statement, run
from jobs.sql import statement

STATUSES = ("queued", "running", "succeeded", "dead", "cancelled")
MAX_LIMIT = 1_000  # rows of one list: a page for people, not an export
MAX_ATTEMPTS_SHOWN = 200  # each may carry 64 KiB of output

# Drivers differ in what they decode.
_JSON_COLUMNS = frozenset({"payload", "result", "error", "evidence", "detail", "deliveries"})


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job. `payload` and `result` are None in a list that was not asked for them.

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
class AttemptRow:
    """One attempt that did not simply succeed. Memory in MiB, processor time in seconds."""

    job_id: int
    attempt: int
    claim: int
    worker_id: UUID | None
    host: str | None
    pid: int | None
    started_at: datetime | None
    finished_at: datetime
    verdict: str
    evidence: Mapping[str, Any]
    charged: bool
    is_kill: bool
    signal: str | None
    exit_code: int | None
    peak_memory_mb: float | None
    memory_limit_mb: int | None
    cpu_seconds: float | None
    error: Mapping[str, Any] | None
    output_tail: str | None


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job with its attempts, newest first."""

    job: JobRow
    attempts: Sequence[AttemptRow]


@dataclass(frozen=True, slots=True)
class KindRow:
    """One kind. `pool` and the defaults are None until a worker has declared it."""

    kind: str
    pool: str | None
    kill_streak: int
    generation: int
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    probe: bool
    probe_job_id: int | None
    priority: int | None
    max_attempts: int | None
    timeout: timedelta | None
    important: bool


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    name: str
    kind: str
    every: timedelta
    misfire: str
    overlap: str
    grace: timedelta
    next_occurrence: datetime
    last_occurrence: datetime | None
    revision: int
    app: str


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker process. It is `alive` while its lease holds by the database's clock."""

    id: UUID
    host: str
    pid: int
    version: str
    pools: Sequence[str]
    kinds: Sequence[str]
    started_at: datetime
    lease_until: datetime
    lost_at: datetime | None
    alive: bool


@dataclass(frozen=True, slots=True)
class AuditRow:
    id: int
    at: datetime
    actor: str
    action: str
    target: str
    reason: str | None
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """What the owners are told. `deliveries`: each message's channel, recipient, job_id and state.

    The state is `sent`, `on its way` or `failed`.
    """

    id: int
    at: datetime
    severity: str
    subject: str
    body: str
    read_at: datetime | None
    event: str
    deliveries: Sequence[Mapping[str, Any]]


R = TypeVar("R")


def list_jobs(
    db: Any,
    *,
    status: str | None = None,
    kind: str | None = None,
    pool: str | None = None,
    organization_id: str | None = None,
    before: int | None = None,
    limit: int = 50,
    full: bool = False,
) -> Any:
    """Jobs, newest first: a list of `JobRow`. The next page is the one `before` the last id of this one.

    Payloads and results, which may have a megabyte each, only with `full`.
    """
    filters = {"status": status, "kind": kind, "pool": pool, "organization_id": organization_id}
    return run(db, _jobs(limit=_bounded(limit), full=full, before=before, **filters))


def show_job(db: Any, job_id: int) -> Any:
    """All that is known of one job, as a `JobReport`; None where it does not exist."""
    return run(db, _job(job_id))


def list_kinds(db: Any, *, limit: int = MAX_LIMIT) -> Any:
    """The kinds, paused ones first: a list of `KindRow`."""
    return run(db, _rows(KindRow, "list_kinds", kind=None, limit=_bounded(limit)))


def show_kind(db: Any, kind: str) -> Any:
    """One kind, as a `KindRow`; None where no worker has declared it and nobody has paused it."""
    return run(db, _first(_rows(KindRow, "list_kinds", kind=kind, limit=1)))


def list_schedules(db: Any, *, limit: int = MAX_LIMIT) -> Any:
    """The schedules by name: a list of `ScheduleRow`."""
    return run(db, _rows(ScheduleRow, "list_schedules", limit=_bounded(limit)))


def list_workers(db: Any, *, limit: int = MAX_LIMIT) -> Any:
    """The workers, newest first: a list of `WorkerRow`. One that ended in order is not there any more."""
    return run(db, _rows(WorkerRow, "list_workers", limit=_bounded(limit)))


def list_audit(db: Any, *, before: int | None = None, limit: int = 50) -> Any:
    """Who did what, newest first: a list of `AuditRow`."""
    return run(db, _rows(AuditRow, "list_audit", before=before, limit=_bounded(limit)))


def list_notices(db: Any, *, unread: bool = False, before: int | None = None, limit: int = 50) -> Any:
    """What the owners are told, newest first, or only what is `unread`: a list of `NoticeRow`."""
    return run(db, _rows(NoticeRow, "list_notices", unread=unread, before=before, limit=_bounded(limit)))


def _job(job_id: int) -> Program[JobReport | None]:
    job = yield from _first(_jobs(id=job_id, limit=1, full=True))
    if job is None:
        return None
    attempts = yield from _rows(AttemptRow, "list_attempts", job_id=job_id, limit=MAX_ATTEMPTS_SHOWN)
    return JobReport(job, attempts)


def _jobs(**given: Any) -> Program[list[JobRow]]:
    nothing = dict.fromkeys(("id", "before", "status", "kind", "pool", "organization_id"))
    return (yield from _rows(JobRow, "list_jobs", **{**nothing, **given}))


def _first(rows: Program[list[R]]) -> Program[R | None]:
    found = yield from rows
    return found[0] if found else None


def _rows(row_type: type[R], query: str, **parameters: Any) -> Program[list[R]]:
    rows = yield Statement(statement(query), parameters)
    return [_row(row_type, row) for row in rows]


def _row(row_type: type[R], row: Row) -> R:
    named = zip(fields(row_type), row, strict=True)  # type: ignore[arg-type]  # R is one of the dataclasses above
    return row_type(*(_decoded(field.name, value) for field, value in named))


def _decoded(name: str, value: Any) -> Any:
    return json.loads(value) if name in _JSON_COLUMNS and value is not None else value


def _bounded(limit: int) -> int:
    if not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit={limit}: 1 to {MAX_LIMIT:,} are allowed")
    return limit
