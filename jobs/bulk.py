"""Retry or cancel all jobs that pass a filter: a batch at a time, each job by the rules of `jobs.control`.

First say how many there are (`jobs.finding.count_matching`). Then call until `next_before` is None:

    before = None
    while True:
        done = retry_matching(db, wanted, actor=..., reason=..., before=before)
        db.commit()
        if (before := done.next_before) is None:
            break

Each batch is one audit entry, which names its jobs. All run in the transaction that the connection has open, and never
commit; await them where the connection is asynchronous.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.connection import Program, Statement, run
from jobs.control import ControlError, audit_row, cancelled_by, checked_actor, checked_reason
from jobs.finding import Found, JobFilter, look
from jobs.rows import bounded
from jobs.sql import statement

BATCH = 250  # jobs of a transaction: it is over within a fraction of a second
LOOK_MS = 200  # of looking for them


@dataclass(frozen=True, slots=True)
class Done:
    """One batch. `changed` jobs did what was asked; the others are counted by why they did not.

    The next batch is the one `before` its `next_before`; None: all were seen.
    """

    changed: int
    refused: Mapping[str, int]
    next_before: int | None


def retry_matching(
    db: Any, wanted: JobFilter, *, actor: str, reason: str = "", before: int | None = None, limit: int = BATCH
) -> Any:
    """Give dead or cancelled jobs their attempts anew, as `control.retry` does: a `Done`.

    Raises `ControlError` where the filter does not say which of the two: of other jobs there may be millions.
    """
    _need(wanted, "retried", {"dead", "cancelled"})
    return run(db, _retry(wanted, checked_actor(actor), checked_reason(reason), before, bounded(limit)))


def cancel_matching(
    db: Any, wanted: JobFilter, *, actor: str, reason: str = "", before: int | None = None, limit: int = BATCH
) -> Any:
    """Cancel queued jobs, or ask the workers of running ones to end them, as `control.cancel` does: a `Done`.

    Raises `ControlError` where the filter does not say which of the two: of other jobs there may be millions.
    """
    _need(wanted, "cancelled", {"queued", "running"})
    return run(db, _cancel(wanted, checked_actor(actor), checked_reason(reason), before, bounded(limit)))


def _retry(wanted: JobFilter, actor: str, reason: str, before: int | None, limit: int) -> Program[Done]:
    found = yield from look(wanted, before=before, limit=limit, milliseconds=LOOK_MS)
    rows = yield Statement(statement("retry_jobs"), {"ids": found.ids})
    refused = Counter(
        f"it is {was}" if copy is None else "a job with its dedupe key is queued"
        for _, was, is_changed, copy in rows
        if not is_changed
    )
    changed = [job_id for job_id, _, is_changed, _ in rows if is_changed]
    return (yield from _done("retry", wanted, actor, reason, found, changed, refused, len(rows)))


def _cancel(wanted: JobFilter, actor: str, reason: str, before: int | None, limit: int) -> Program[Done]:
    found = yield from look(wanted, before=before, limit=limit, milliseconds=LOOK_MS)
    rows = yield Statement(statement("cancel_jobs"), {"ids": found.ids, "error": cancelled_by(actor, reason)})
    refused = Counter(f"it is {was}" for _, was, becomes in rows if becomes is None)
    changed = [job_id for job_id, _, becomes in rows if becomes is not None]
    return (yield from _done("cancel", wanted, actor, reason, found, changed, refused, len(rows)))


def _done(
    action: str,
    wanted: JobFilter,
    actor: str,
    reason: str,
    found: Found,
    changed: list[int],
    refused: Counter[str],
    seen: int,
) -> Program[Done]:
    if seen < len(found.ids):
        refused["somebody holds it"] = len(found.ids) - seen
    if changed or refused:
        detail = {"filter": wanted.given(), "changed": len(changed), "refused": refused, "ids": changed}
        yield audit_row(actor, action, f"{len(changed)} jobs", reason, detail)
    return Done(len(changed), refused, found.next_before)


def _need(wanted: JobFilter, what: str, statuses: Collection[str]) -> None:
    if wanted.status not in statuses:
        raise ControlError(f"only {' or '.join(sorted(statuses))} jobs can be {what}: name one of these as the status")
