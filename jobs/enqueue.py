"""Enqueue a job in the caller's own transaction: it exists exactly when that transaction commits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Generic
from uuid import UUID

from jobs.connection import Program, Row, Statement, ask, run
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
    keywords = (organization_id, dedupe_key, dedupe_active, concurrency_key, run_after, priority)
    insert = _insert(_row(task, current_trace(), payload, *keywords))
    return ask(db, insert, partial(_job_id, insert))


def enqueueing(task: Task[P], payload: P, **keywords: Any) -> Program[int | None]:
    """What `enqueue` does, as a step of a larger program. Takes the same keywords and raises the same, at once."""
    return _enqueue_one(_insert(_row(task, current_trace(), payload, **keywords)))


def enqueue_many(db: Any, task: Task[P], jobs: Iterable[P | Job[P]]) -> Any:
    """Write many jobs of one kind, thousands a statement, in the transaction that `db` has open.

    Each element is a payload, or a `Job` where it needs keys or a time of its own. Returns (await it where `db` is
    asynchronous) a list in the same order: the job's id, or None where its dedupe key is taken. Raises like `enqueue`,
    before the first row is written. Never commits.
    """
    _check_task(task)
    trace = current_trace()
    rows = [
        _row(task, trace, job.payload, *_keywords(job)) if isinstance(job, Job) else _row(task, trace, job)
        for job in jobs
    ]
    batches = [rows[i : i + ENQUEUE_BATCH] for i in range(0, len(rows), ENQUEUE_BATCH)]
    return run(db, _enqueue_batches([Statement(statement("enqueue"), _arrays(batch)) for batch in batches]))


# Of a `Job`, in the order of `_row`.
_keywords = attrgetter("organization_id", "dedupe_key", "dedupe_active", "concurrency_key", "run_after", "priority")


def _insert(row: dict[str, Any]) -> Statement:
    return Statement(statement("enqueue_one" if row["dedupe_key"] is None else "enqueue_deduped"), row)


def _enqueue_one(insert: Statement) -> Program[int | None]:
    return _job_id(insert, (yield insert))


def _job_id(insert: Statement, rows: Sequence[Row]) -> int | None:
    if rows:
        return rows[0][0]  # type: ignore[no-any-return]
    _require_reason(insert, insert.parameters["dedupe_key"])
    return None


def _enqueue_batches(inserts: list[Statement]) -> Program[list[int | None]]:
    ids: list[int | None] = []
    for insert in inserts:
        rows = yield insert
        for (job_id,), dedupe_key in zip(rows, insert.parameters["dedupe_key"], strict=True):
            if job_id is None:
                _require_reason(insert, dedupe_key)
            ids.append(job_id)
    return ids


def _require_reason(insert: Statement, dedupe_key: str | None) -> None:
    if dedupe_key is None:
        raise RuntimeError(
            f"a job of kind {insert.parameters['kind']} was not written although it has no dedupe key: the id "
            "sequence of background_jobs is behind its rows, or a trigger or policy of yours refuses them"
        )


def _row(
    task: Task[P],
    trace: str | None,
    payload: P,
    organization_id: str | UUID | int | None = None,
    dedupe_key: str | None = None,
    dedupe_active: bool = False,
    concurrency_key: str | None = None,
    run_after: datetime | timedelta | None = None,
    priority: Priority | None = None,
) -> dict[str, Any]:
    """What is written of a job, checked."""
    _check_task(task)
    if not isinstance(payload, task.payload_type):
        raise TypeError(f"{task.kind} takes {task.payload_type.__name__}, not {type(payload).__name__}")
    if priority is None:
        priority = task.priority
    elif not isinstance(priority, Priority):
        raise TypeError(f"{task.kind}: priority must be a Priority, not {priority!r}")
    if dedupe_active is not False:
        _check_dedupe_active(task, dedupe_active, dedupe_key)
    if run_after is not None:
        _check_run_after(task, run_after)
    if dedupe_key is not None:
        _check_key(task, "dedupe_key", dedupe_key, shortest=1)
    if concurrency_key is not None:
        _check_key(task, "concurrency_key", concurrency_key, shortest=1)
    if organization_id is not None:
        organization_id = _checked_organization(task, organization_id)
    return {
        "kind": task.kind,
        "pool": str(task.pool),
        "max_attempts": task.max_attempts,
        "timeout": task.timeout,
        "trace_context": trace,
        "payload": payload_json(task, payload),
        "priority": int(priority),
        "run_after": run_after if isinstance(run_after, datetime) else None,
        "delay": run_after if isinstance(run_after, timedelta) else None,
        "organization_id": organization_id,
        "dedupe_key": dedupe_key,
        "dedupe_active": dedupe_active,
        "concurrency_key": concurrency_key,
    }


_SHARED = ("kind", "pool", "max_attempts", "timeout", "trace_context")  # by all jobs of a call


def _arrays(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows of one statement: one value of what they share, an array of all else, of payloads in JSON."""
    first = rows[0]
    arrays: dict[str, Any] = {name: first[name] if name in _SHARED else [row[name] for row in rows] for name in first}
    arrays["payload"] = f"[{','.join(arrays['payload'])}]"
    return arrays


def _check_task(task: object) -> None:
    if not isinstance(task, Task):
        raise TypeError(f"enqueue needs a Task, not {task!r}")


def _check_dedupe_active(task: Task[P], dedupe_active: object, dedupe_key: str | None) -> None:
    if not isinstance(dedupe_active, bool):
        raise TypeError(f"{task.kind}: dedupe_active must be True or False, not {dedupe_active!r}")
    if dedupe_key is None:
        raise ValueError(f"{task.kind}: dedupe_active needs a dedupe_key")


def _check_run_after(task: Task[P], run_after: object) -> None:
    if not isinstance(run_after, datetime | timedelta):
        raise TypeError(f"{task.kind}: run_after must be a datetime or a timedelta, not {run_after!r}")
    if isinstance(run_after, datetime) and run_after.utcoffset() is None:
        raise ValueError(f"{task.kind}: run_after={run_after} has no time zone")
    if isinstance(run_after, timedelta) and abs(run_after) > MAX_DELAY:
        raise ValueError(f"{task.kind}: run_after={run_after} is more than {MAX_DELAY} away")


def _checked_organization(task: Task[P], organization: object) -> str:
    if isinstance(organization, bool) or not isinstance(organization, str | UUID | int):
        raise TypeError(f"{task.kind}: organization_id must be a string, a UUID or a number")
    _check_key(task, "organization_id", str(organization), shortest=0)
    return str(organization)


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
