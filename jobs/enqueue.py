"""Enqueue a job in the caller's own transaction: it exists exactly when that transaction commits."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic
from uuid import UUID

from jobs.connection import Program, Statement, run
from jobs.outcome import ESCAPED_NUL
from jobs.redaction import MASK
from jobs.secret_fields import revealed_json
from jobs.sql import statement
from jobs.task import MAX_DELAY, MAX_KEY_LENGTH, MAX_PAYLOAD_BYTES, P, Priority, Task
from jobs.tracing import current_trace

ENQUEUE_BATCH = 5_000  # rows a statement: some MB at most for usual payloads, and no gain beyond it


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Generic[P]):
    """One job for `enqueue_many`: the payload and what `enqueue` takes as keywords."""

    payload: P
    organization_id: str | UUID | int | None = None
    dedupe_key: str | None = None
    dedupe_active: bool = False
    concurrency_key: str | None = None
    run_after: datetime | timedelta | None = None
    priority: Priority | None = None


def enqueue(
    db: Any,
    task: Task[P],
    payload: P,
    *,
    organization_id: str | UUID | int | None = None,
    dedupe_key: str | None = None,
    dedupe_active: bool = False,
    concurrency_key: str | None = None,
    run_after: datetime | timedelta | None = None,
    priority: Priority | None = None,
) -> Any:
    """Write one job in the transaction that `db` has open. Await the result where `db` is asynchronous.

    `db` is a psycopg connection or cursor, an SQLAlchemy 2 session or connection, an asyncpg connection or a Django
    connection. `dedupe_key`: at most one queued job of this kind and key; with `dedupe_active` a running one counts
    too. `concurrency_key`: at most one running job of this key, over all kinds and hosts. `run_after`: a moment with
    its time zone, or a delay counted from the transaction's start.

    Returns the job's id, or None where its dedupe key is taken. Raises `TypeError` or `ValueError` before anything is
    written for a payload of another type or over 1 MiB, an empty key or one over 500 characters, or a `run_after`
    without zone. Never commits.
    """
    return run(
        db,
        enqueueing(
            task,
            payload,
            organization_id=organization_id,
            dedupe_key=dedupe_key,
            dedupe_active=dedupe_active,
            concurrency_key=concurrency_key,
            run_after=run_after,
            priority=priority,
        ),
    )


def enqueueing(task: Task[P], payload: P, **keywords: Any) -> Program[int | None]:
    """What `enqueue` runs, as a step of a larger program. Takes the same keywords and raises the same, at once."""
    parameters = _of_task(task) | _of_job(task, Job(payload=payload, **keywords))
    return _enqueue_one(Statement(statement("enqueue_one"), parameters))


def enqueue_many(db: Any, task: Task[P], jobs: Iterable[P | Job[P]]) -> Any:
    """Write many jobs of one kind, thousands a statement, in the transaction that `db` has open.

    Each element is a payload, or a `Job` where it needs keys or a time of its own. Returns (await it where `db` is
    asynchronous) a list in the same order: the job's id, or None where its dedupe key is taken. Raises like `enqueue`,
    before the first row is written. Never commits.
    """
    of_task = _of_task(task)
    rows = [_of_job(task, job if isinstance(job, Job) else Job(payload=job)) for job in jobs]
    batches = [rows[i : i + ENQUEUE_BATCH] for i in range(0, len(rows), ENQUEUE_BATCH)]
    return run(db, _enqueue_batches([Statement(statement("enqueue"), of_task | _arrays(batch)) for batch in batches]))


def _enqueue_one(insert: Statement) -> Program[int | None]:
    rows = yield insert
    job_id = rows[0][0] if rows else None
    _require_reason(insert, job_id, insert.parameters["dedupe_key"])
    return job_id


def _enqueue_batches(inserts: list[Statement]) -> Program[list[int | None]]:
    ids: list[int | None] = []
    for insert in inserts:
        rows = yield insert
        for (job_id,), dedupe_key in zip(rows, insert.parameters["dedupe_key"], strict=True):
            _require_reason(insert, job_id, dedupe_key)
            ids.append(job_id)
    return ids


def _require_reason(insert: Statement, job_id: int | None, dedupe_key: str | None) -> None:
    if job_id is None and dedupe_key is None:
        raise RuntimeError(
            f"a job of kind {insert.parameters['kind']} was not written although it has no dedupe key: the id "
            "sequence of background_jobs is behind its rows, or a trigger or policy of yours refuses them"
        )


def _of_task(task: Task[P]) -> dict[str, Any]:
    """The parameters of both statements that the jobs of one call share."""
    if not isinstance(task, Task):
        raise TypeError(f"enqueue needs a Task, not {task!r}")
    return {
        "kind": task.kind,
        "pool": str(task.pool),
        "max_attempts": task.max_attempts,
        "timeout": task.timeout,
        "trace_context": current_trace(),
    }


def _of_job(task: Task[P], job: Job[P]) -> dict[str, Any]:
    """The parameters that each job has for itself: one value for one job, an array for many, of payloads in JSON."""
    _check(task, job)
    return {
        "payload": payload_json(task, job.payload),
        "priority": int(task.priority if job.priority is None else job.priority),
        "run_after": job.run_after if isinstance(job.run_after, datetime) else None,
        "delay": job.run_after if isinstance(job.run_after, timedelta) else None,
        "organization_id": None if job.organization_id is None else str(job.organization_id),
        "dedupe_key": job.dedupe_key,
        "dedupe_active": job.dedupe_active,
        "concurrency_key": job.concurrency_key,
    }


def _arrays(rows: list[dict[str, Any]]) -> dict[str, Any]:
    arrays: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    arrays["payload"] = f"[{','.join(arrays['payload'])}]"
    return arrays


def _check(task: Task[P], job: Job[P]) -> None:
    if not isinstance(job.payload, task.payload_type):
        raise TypeError(f"{task.kind} takes {task.payload_type.__name__}, not {type(job.payload).__name__}")
    if job.priority is not None and not isinstance(job.priority, Priority):
        raise TypeError(f"{task.kind}: priority must be a Priority, not {job.priority!r}")
    if not isinstance(job.dedupe_active, bool):
        raise TypeError(f"{task.kind}: dedupe_active must be True or False, not {job.dedupe_active!r}")
    if job.dedupe_active and job.dedupe_key is None:
        raise ValueError(f"{task.kind}: dedupe_active needs a dedupe_key")
    if job.run_after is not None:
        _check_run_after(task, job.run_after)
    if job.dedupe_key is not None:
        _check_key(task, "dedupe_key", job.dedupe_key, shortest=1)
    if job.concurrency_key is not None:
        _check_key(task, "concurrency_key", job.concurrency_key, shortest=1)
    if job.organization_id is not None:
        organization: object = job.organization_id
        if isinstance(organization, bool) or not isinstance(organization, str | UUID | int):
            raise TypeError(f"{task.kind}: organization_id must be a string, a UUID or a number")
        _check_key(task, "organization_id", str(organization), shortest=0)


def _check_run_after(task: Task[P], run_after: object) -> None:
    if not isinstance(run_after, datetime | timedelta):
        raise TypeError(f"{task.kind}: run_after must be a datetime or a timedelta, not {run_after!r}")
    if isinstance(run_after, datetime) and run_after.utcoffset() is None:
        raise ValueError(f"{task.kind}: run_after={run_after} has no time zone")
    if isinstance(run_after, timedelta) and abs(run_after) > MAX_DELAY:
        raise ValueError(f"{task.kind}: run_after={run_after} is more than {MAX_DELAY} away")


def _check_key(task: Task[P], name: str, key: object, *, shortest: int) -> None:
    if not isinstance(key, str):
        raise TypeError(f"{task.kind}: {name} must be a string, not {key!r}")
    if not shortest <= len(key) <= MAX_KEY_LENGTH or "\x00" in key:
        raise ValueError(
            f"{task.kind}: {name} must have {shortest} to {MAX_KEY_LENGTH} characters and no NUL, not {key[:50]!r}"
        )
    key.encode()  # raises ValueError for a lone surrogate, which no database takes


def payload_json(task: Task[P], payload: P) -> str:
    """The payload as it is stored, its secrets readable: its row is what carries them to the worker.

    Raises `ValueError` where it is over 1 MiB or holds what PostgreSQL refuses.
    """
    text = payload.model_dump_json()
    if MASK in text or task.secret_paths:
        text = revealed_json(payload)
    size = len(text.encode())
    if size > MAX_PAYLOAD_BYTES:
        raise ValueError(
            f"{task.kind}: the payload has {size:,} bytes, {MAX_PAYLOAD_BYTES:,} are allowed; "
            "store the data and pass its identifier"
        )
    if "\\u0000" in text and ESCAPED_NUL.search(text):
        raise ValueError(f"{task.kind}: the payload holds a NUL character, which PostgreSQL cannot store")
    return text
