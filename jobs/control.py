"""What an operator may do: retry, cancel, pause, resume, run a schedule now.

Each needs an actor, takes a reason, and is audited.

All run in the transaction that the caller's connection has open, together with their audit row, and never commit.
Await them where the connection is asynchronous.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC
from typing import Any

from jobs.app import Overlap, Tick
from jobs.connection import Program, Row, Statement, run
from jobs.outcome import JobError, storable
from jobs.sql import statement

MAX_ACTOR_LENGTH = 200
MAX_REASON_LENGTH = 2_000
MAX_KIND_LENGTH = 100  # as the domain background_job_kind has it
LAST_ID = 2**63 - 1


class ControlError(Exception):
    """The action does not apply; the message says why. Nothing was changed."""


def retry(db: Any, job_id: int, *, actor: str, reason: str = "") -> Any:
    """Give a dead or cancelled job its attempts anew; the history of attempts stays. It is due at once.

    Raises `ControlError` for a job that does not exist or has not ended unsuccessfully, or where a queued job holds
    its dedupe key.
    """
    return run(db, _retry(job_id, checked_actor(actor), checked_reason(reason)))


def cancel(db: Any, job_id: int, *, actor: str, reason: str = "") -> Any:
    """Cancel a queued job at once, or ask the worker of a running one to end it.

    Returns the status after the call: `cancelled`, or `running` where the worker was asked. Raises `ControlError` for
    a job that does not exist or has ended.
    """
    return run(db, _cancel(job_id, checked_actor(actor), checked_reason(reason)))


def pause(db: Any, kind: str, *, actor: str, reason: str = "") -> Any:
    """Let no job of `kind` start from the commit on; running ones finish. A paused kind keeps its first reason."""
    return run(db, _pause(kind, checked_actor(actor), checked_reason(reason)))


def resume(db: Any, kind: str, *, actor: str, reason: str = "", probe: bool = False) -> Any:
    """Let a paused kind run again, with a streak of zero. Outcomes of attempts from before do not count.

    With `probe` exactly one job goes first: its success opens the kind, its death leaves it paused. Raises
    `ControlError` for a kind that is not paused.
    """
    return run(db, _resume(kind, checked_actor(actor), checked_reason(reason), probe))


def run_schedule_now(db: Any, name: str, *, actor: str, reason: str = "") -> Any:
    """Fire a schedule once, outside its grid: the occurrence is this very moment. Returns the job's id.

    The grid goes on as if nothing had happened: the next occurrence is neither moved nor spared. Like one of the grid,
    it is another occurrence that is not finished to those that follow, and it keeps to the schedule's overlap itself:
    `skip` refuses while one is queued or running, `queue` runs it after that one, `allow` beside it. What it is made of
    comes from the kind's declaration, as the last worker published it. Raises `ControlError` for a schedule that does
    not exist, whose kind no worker has declared, or that refuses.
    """
    return run(db, _run_schedule_now(name, checked_actor(actor), checked_reason(reason)))


def record(db: Any, action: str, target: str, *, actor: str, reason: str = "") -> Any:
    """Put what an operator does by other means, in the same transaction, into the audit as well."""
    return run(db, _record(action, target, checked_actor(actor), checked_reason(reason)))


def _record(action: str, target: str, actor: str, reason: str) -> Program[None]:
    yield audit_row(actor, action, target, reason, {})


def _retry(job_id: int, actor: str, reason: str) -> Program[None]:
    _need_possible(job_id)
    rows = yield Statement(statement("retry_job"), {"id": job_id})
    status, changed, queued_copy = rows[0] if rows else (None, False, None)
    if status is None:
        raise ControlError(f"job {job_id} does not exist")
    if queued_copy is not None:
        raise ControlError(f"job {job_id} is not retried: job {queued_copy} is queued with the same dedupe key")
    if not changed:
        raise ControlError(f"job {job_id} is {status}; only a dead or cancelled job can be retried")
    yield audit_row(actor, "retry", f"job {job_id}", reason, {"was": status})


def _cancel(job_id: int, actor: str, reason: str) -> Program[str]:
    _need_possible(job_id)
    rows = yield Statement(statement("cancel_job"), {"id": job_id, "error": cancelled_by(actor, reason)})
    was, now = rows[0] if rows else (None, None)
    if was is None:
        raise ControlError(f"job {job_id} does not exist")
    if now is None:
        raise ControlError(f"job {job_id} is already {was}")
    yield audit_row(actor, "cancel", f"job {job_id}", reason, {"was": was})
    return str(now)


def _pause(kind: str, actor: str, reason: str) -> Program[None]:
    if not 1 <= len(kind) <= MAX_KIND_LENGTH or storable(kind) != kind:
        raise ControlError(f"pause needs a kind: a name of 1 to {MAX_KIND_LENGTH} characters, none of them NUL")
    yield Statement(statement("pause_kind"), {"kind": kind, "actor": actor, "reason": reason or None})
    yield audit_row(actor, "pause", kind, reason, {})


def _resume(kind: str, actor: str, reason: str, probe: bool) -> Program[None]:
    rows: Sequence[Row] = ()
    if storable(kind) == kind:
        rows = yield Statement(statement("resume_kind"), {"kind": kind, "probe": probe})
    if not rows:
        raise ControlError(f"kind {kind} is not paused")
    yield audit_row(actor, "resume", kind, reason, {"probe": probe, "was": rows[0][0]})


def _run_schedule_now(name: str, actor: str, reason: str) -> Program[int]:
    rows: Sequence[Row] = ()
    if storable(name) == name:
        rows = yield Statement(statement("lock_schedule"), {"name": name})
    if not rows:
        raise ControlError(f"schedule {name} does not exist")
    kind, overlap, pool, priority, max_attempts, timeout, now = rows[0]
    if pool is None:
        raise ControlError(f"schedule {name} is not run: no worker has declared its kind {kind}")
    # By a statement of its own: behind the lock of the schedule, it sees what fired while we waited.
    active = yield Statement(statement("active_of_schedule"), {"name": name})
    if active and overlap == Overlap.SKIP:
        job_id, status = active[0]
        raise ControlError(f"schedule {name} is not run: its job {job_id} is {status}, and its overlap is to skip then")
    fired = yield Statement(
        statement("fire_schedule"),
        {
            "name": name,
            "kind": kind,
            "pool": pool,
            "priority": priority,
            "max_attempts": max_attempts,
            "timeout": timeout,
            "payload": Tick(schedule=name, occurrence=now.astimezone(UTC)).model_dump_json(),
            "occurrence": now,
            "concurrency_key": f"schedule:{name}" if overlap == Overlap.QUEUE else None,
        },
    )
    if not fired:
        raise ControlError(f"schedule {name} is not run: it fires at this very moment")
    job_id = int(fired[0][0])
    yield audit_row(actor, "run now", f"schedule {name}", reason, {"job": job_id})
    return job_id


def _need_possible(job_id: int) -> None:
    """Raises `ControlError` for a number that no job can have, which the database would not even compare."""
    if not 0 <= job_id <= LAST_ID:
        raise ControlError(f"job {job_id} does not exist")


def cancelled_by(actor: str, reason: str) -> str:
    """The error of a cancelled job, as JSON."""
    error = JobError("Cancelled", f"cancelled by {actor}" + (f": {reason}" if reason else ""))
    return json.dumps(asdict(error))


def audit_row(actor: str, action: str, target: str, reason: str, detail: Mapping[str, Any]) -> Statement:
    """What is written beside every action, in its transaction."""
    return Statement(
        statement("audit"),
        {"actor": actor, "action": action, "target": target, "reason": reason or None, "detail": json.dumps(detail)},
    )


def checked_actor(actor: object) -> str:
    """Who does it. Raises `ControlError` where nobody is named."""
    if not isinstance(actor, str) or not 1 <= len(actor.strip()) <= MAX_ACTOR_LENGTH or storable(actor) != actor:
        raise ControlError(f"an actor is needed: who does this? (1 to {MAX_ACTOR_LENGTH} characters, no NUL)")
    return actor.strip()


def checked_reason(reason: str) -> str:
    """Why, as it can be stored; empty is allowed. Raises `ControlError` where it is too long."""
    if len(reason) > MAX_REASON_LENGTH:
        raise ControlError(f"the reason has {len(reason)} characters; {MAX_REASON_LENGTH} are allowed")
    return storable(reason.strip())
