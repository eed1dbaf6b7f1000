"""What people may look at: jobs with their attempts, kinds, schedules, workers, the audit. Read only.

Like `jobs.control`, on any connection and in the transaction that it has open; await the result where the connection
is asynchronous. Every list is bounded by `limit`, and none counts a table. The fields of a row are the columns of the
tables, plus what is needed to read them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from jobs.connection import Program, run
from jobs.control import LAST_ID
from jobs.finding import JobFilter, find_page, jobs_by_id
from jobs.finding import JobRow as JobRow  # noqa: PLC0414  (who lists jobs looks for their rows here)
from jobs.rows import MAX_LIMIT, bounded, first_of, rows_of
from jobs.subject import process_title
from jobs.task import Pool

STATUSES = ("queued", "running", "succeeded", "dead", "cancelled")
MAX_ATTEMPTS_SHOWN = 200  # each may carry 64 KiB of output
MAX_BY_HAND_SHOWN = 20  # of one job or kind, the newest; the audit has the others


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
class RunningOn:
    """The worker of a running job: its host and its own process there, which is not that of a job of `ingest`."""

    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class AuditRow:
    id: int
    at: datetime
    actor: str
    action: str
    target: str
    reason: str | None
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """What is not given lets every entry pass.

    `job_id` is of what was done to that job, alone or with others, or made it. `target` is a kind, `job 7`,
    `schedule nightly`: as the entry has it.
    """

    job_id: int | None = None
    target: str | None = None
    actor: str | None = None
    action: str | None = None

    def given(self) -> Mapping[str, Any]:
        """What is given."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job with its attempts, newest first. `worker` while it runs; its child's pid is written only at its end.

    `by_hand` is what was done to it by hand, newest first, the last `MAX_BY_HAND_SHOWN`.
    """

    job: JobRow
    attempts: Sequence[AttemptRow]
    worker: RunningOn | None
    by_hand: Sequence[AuditRow]

    @property
    def process_title(self) -> str | None:
        """What the child of a running job of the pool `ingest` is called on the worker's host, in `ps` and `top`."""
        if self.worker is None or self.job.pool != Pool.INGEST:
            return None
        return process_title(self.job.kind, self.job.id, self.job.attempt)

    @property
    def runs(self) -> str | None:
        """Where a person finds it, in words; None unless it runs."""
        if self.worker is None:
            return None
        if self.process_title is None:
            return f"on {self.worker.host}, in its worker's own process, pid {self.worker.pid}"
        return f'on {self.worker.host}, its process is called "{self.process_title}"'


@dataclass(frozen=True, slots=True)
class KindRow:
    """One kind. `pool` and the defaults are None until a worker has declared it.

    `max_per_organization` None is no bound. What is kept: zero is for ever, None what the settings of workers say.
    """

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
    max_per_organization: int | None
    keep_succeeded: timedelta | None
    keep_dead: timedelta | None
    keep_cancelled: timedelta | None


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One schedule: on a fixed grid of `every`, or by `cron` on the clock of `timezone`."""

    name: str
    kind: str
    every: timedelta | None
    misfire: str
    overlap: str
    grace: timedelta
    next_occurrence: datetime
    last_occurrence: datetime | None
    revision: int
    app: str
    cron: str | None
    timezone: str | None


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker process. It is `alive` while its lease holds by the database's clock.

    From `state_at` on, it is what the worker said of itself at that moment, and says anew once it changes: None before
    it has said anything. Memory in MiB: its own, that of all children with what they started, that of the largest.
    `slots` by pool: {"agent": {"used": 3, "total": 100}}. What is told of children is None for a worker without any.
    """

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
    state_at: datetime | None
    memory_mb: float | None
    children: int | None
    children_mb: float | None
    largest_child_mb: float | None
    template_up: bool | None
    slots: Mapping[str, Mapping[str, int]] | None


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


def error_line(error: object) -> str:
    """Type and message. Whoever writes rows by hand may have put anything there."""
    if isinstance(error, Mapping) and "message" in error:
        return f"{error.get('type', 'error')}: {error['message']}"
    return json.dumps(error, ensure_ascii=False)


def error_stack(error: object) -> str:
    """Where it was raised; empty where that is not known."""
    frames = error.get("frames") if isinstance(error, Mapping) else None
    return frames if isinstance(frames, str) else ""


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
    wanted = JobFilter(status=status, kind=kind, pool=pool, organization_id=organization_id)
    return list_matching(db, wanted, before=before, limit=limit, full=full)


def list_matching(db: Any, wanted: JobFilter, *, before: int | None = None, limit: int = 50, full: bool = False) -> Any:
    """`list_jobs` by any filter."""
    return run(db, _jobs(wanted, limit=bounded(limit), full=full, before=before))


def show_job(db: Any, job_id: int) -> Any:
    """All that is known of one job, as a `JobReport`; None where it does not exist."""
    return run(db, _job(job_id))


def list_kinds(db: Any, *, limit: int = MAX_LIMIT) -> Any:
    """The kinds, paused ones first: a list of `KindRow`."""
    return run(db, rows_of(KindRow, "list_kinds", kind=None, limit=bounded(limit)))


def show_kind(db: Any, kind: str) -> Any:
    """One kind, as a `KindRow`; None where no worker has declared it and nobody has paused it."""
    return run(db, first_of(rows_of(KindRow, "list_kinds", kind=kind, limit=1)))


def list_kills(db: Any, kind: str, *, limit: int = 50) -> Any:
    """The attempts of a kind that took their process down, newest first: a list of `AttemptRow`.

    With their memory and its limit, without error and output: the job has those. Together with `jobs.activity`, which
    has the memory of attempts that ended well, they say which limit would have been right.
    """
    return run(db, rows_of(AttemptRow, "list_kills", kind=kind, limit=bounded(limit)))


def list_schedules(db: Any, *, limit: int = MAX_LIMIT) -> Any:
    """The schedules by name: a list of `ScheduleRow`."""
    return run(db, rows_of(ScheduleRow, "list_schedules", limit=bounded(limit)))


def list_workers(db: Any, *, limit: int = MAX_LIMIT) -> Any:
    """The workers, newest first: a list of `WorkerRow`. One that ended in order is not there any more."""
    return run(db, rows_of(WorkerRow, "list_workers", limit=bounded(limit)))


def list_audit(db: Any, wanted: AuditFilter | None = None, *, before: int | None = None, limit: int = 50) -> Any:
    """Who did what, newest first: a list of `AuditRow`."""
    return run(db, _audit(wanted or AuditFilter(), before=before, limit=bounded(limit)))


def list_notices(db: Any, *, unread: bool = False, before: int | None = None, limit: int = 50) -> Any:
    """What the owners are told, newest first, or only what is `unread`: a list of `NoticeRow`."""
    return run(db, rows_of(NoticeRow, "list_notices", unread=unread, before=before, limit=bounded(limit)))


def _job(job_id: int) -> Program[JobReport | None]:
    job = yield from first_of(jobs_by_id([job_id], full=True))
    if job is None:
        return None
    attempts = yield from rows_of(AttemptRow, "list_attempts", job_id=job_id, limit=MAX_ATTEMPTS_SHOWN)
    worker = yield from first_of(rows_of(RunningOn, "running_on", job_id=job_id))
    by_hand = yield from _audit(AuditFilter(job_id=job_id), limit=MAX_BY_HAND_SHOWN)
    return JobReport(job, attempts, worker, by_hand)


def _audit(wanted: AuditFilter, *, before: int | None = None, limit: int) -> Program[list[AuditRow]]:
    asked = {"filter": json.dumps(wanted.given()), "before": before, "limit": limit}
    if wanted.job_id is None:
        return rows_of(AuditRow, "list_audit", **asked)
    return rows_of(AuditRow, "list_audit_of_job", job_id=wanted.job_id, **asked)


def _jobs(wanted: JobFilter, *, before: int | None, limit: int, full: bool) -> Program[list[JobRow]]:
    """As many pages as it takes: somebody asked for a list, and has the time."""
    jobs: list[JobRow] = []
    if before is None:
        before = LAST_ID  # no first page: that has jobs of a key which come again in their place
    while True:
        page = yield from find_page(wanted, before=before, limit=limit - len(jobs), full=full)
        jobs += page.jobs
        before = page.next_before
        if before is None or len(jobs) >= limit:
            return jobs
