"""What an operator may do: retry, cancel, pause, resume. Each needs an actor, takes a reason, and is audited.

All run in the transaction that the caller's connection has open, together with their audit row, and never commit.
Await them where the connection is asynchronous.
"""

import json
from dataclasses import asdict
from typing import Any

from jobs.connection import Program, Statement, run
from jobs.outcome import JobError, storable
from jobs.sql import statement

MAX_ACTOR_LENGTH = 200
MAX_REASON_LENGTH = 2_000


class ControlError(Exception):
    """The action does not apply; the message says why. Nothing was changed."""


def retry(db: Any, job_id: int, *, actor: str, reason: str = "") -> Any:
    """Give a dead or cancelled job its attempts anew; the history of attempts stays. It is due at once.

    Raises `ControlError` for a job that does not exist or has not ended unsuccessfully, or where a queued job holds
    its dedupe key.
    """
    return run(db, _retry(job_id, _actor(actor), _reason(reason)))


def cancel(db: Any, job_id: int, *, actor: str, reason: str = "") -> Any:
    """Cancel a queued job at once, or ask the worker of a running one to end it.

    Returns the status after the call: `cancelled`, or `running` where the worker was asked. Raises `ControlError` for
    a job that does not exist or has ended.
    """
    return run(db, _cancel(job_id, _actor(actor), _reason(reason)))


def pause(db: Any, kind: str, *, actor: str, reason: str = "") -> Any:
    """Let no job of `kind` start from the commit on; running ones finish. A paused kind keeps its first reason."""
    return run(db, _pause(kind, _actor(actor), _reason(reason)))


def resume(db: Any, kind: str, *, actor: str, reason: str = "", probe: bool = False) -> Any:
    """Let a paused kind run again, with a streak of zero. Outcomes of attempts from before do not count.

    With `probe` exactly one job goes first: its success opens the kind, its death leaves it paused. Raises
    `ControlError` for a kind that is not paused.
    """
    return run(db, _resume(kind, _actor(actor), _reason(reason), probe))


def record(db: Any, action: str, target: str, *, actor: str, reason: str = "") -> Any:
    """Put what an operator does by other means, in the same transaction, into the audit as well."""
    return run(db, _record(action, target, _actor(actor), _reason(reason)))


def _record(action: str, target: str, actor: str, reason: str) -> Program[None]:
    yield _audit(actor, action, target, reason, {})


def _retry(job_id: int, actor: str, reason: str) -> Program[None]:
    rows = yield Statement(statement("retry_job"), {"id": job_id})
    status, changed, queued_copy = rows[0] if rows else (None, False, None)
    if status is None:
        raise ControlError(f"job {job_id} does not exist")
    if queued_copy is not None:
        raise ControlError(f"job {job_id} is not retried: job {queued_copy} is queued with the same dedupe key")
    if not changed:
        raise ControlError(f"job {job_id} is {status}; only a dead or cancelled job can be retried")
    yield _audit(actor, "retry", f"job {job_id}", reason, {"was": status})


def _cancel(job_id: int, actor: str, reason: str) -> Program[str]:
    error = JobError("Cancelled", f"cancelled by {actor}" + (f": {reason}" if reason else ""))
    rows = yield Statement(statement("cancel_job"), {"id": job_id, "error": json.dumps(asdict(error))})
    was, now = rows[0] if rows else (None, None)
    if was is None:
        raise ControlError(f"job {job_id} does not exist")
    if now is None:
        raise ControlError(f"job {job_id} is already {was}")
    yield _audit(actor, "cancel", f"job {job_id}", reason, {"was": was})
    return str(now)


def _pause(kind: str, actor: str, reason: str) -> Program[None]:
    if not kind:
        raise ControlError("pause needs a kind")
    yield Statement(statement("pause_kind"), {"kind": kind, "actor": actor, "reason": reason or None})
    yield _audit(actor, "pause", kind, reason, {})


def _resume(kind: str, actor: str, reason: str, probe: bool) -> Program[None]:
    rows = yield Statement(statement("resume_kind"), {"kind": kind, "probe": probe})
    if not rows:
        raise ControlError(f"kind {kind} is not paused")
    yield _audit(actor, "resume", kind, reason, {"probe": probe, "was": rows[0][0]})


def _audit(actor: str, action: str, target: str, reason: str, detail: dict[str, Any]) -> Statement:
    return Statement(
        statement("audit"),
        {"actor": actor, "action": action, "target": target, "reason": reason or None, "detail": json.dumps(detail)},
    )


def _actor(actor: object) -> str:
    if not isinstance(actor, str) or not 1 <= len(actor.strip()) <= MAX_ACTOR_LENGTH or storable(actor) != actor:
        raise ControlError(f"an actor is needed: who does this? (1 to {MAX_ACTOR_LENGTH} characters, no NUL)")
    return actor.strip()


def _reason(reason: str) -> str:
    if len(reason) > MAX_REASON_LENGTH:
        raise ControlError(f"the reason has {len(reason)} characters; {MAX_REASON_LENGTH} are allowed")
    return storable(reason.strip())
