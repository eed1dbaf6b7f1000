"""Where one job stands: what happens to it next, and what comes before it. On any connection, like `jobs.reports`."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from jobs.connection import Program, Statement, run
from jobs.sql import statement

MAX_BEFORE = 1_000  # jobs that are counted before one


class Next(StrEnum):
    """What a job waits for."""

    END = "its end"  # it runs
    CLAIM = "a free slot"
    TIME = "its time"
    KEY = "the running job of its concurrency key"
    RESUME = "its kind, which is paused"
    WORKER = "a worker that knows its kind"  # without one it is dead after a while: jobs/sql/bury_unknown.sql
    POOL = "a worker that serves its pool"
    NOTHING = "nothing"  # it has ended


@dataclass(frozen=True, slots=True)
class Standing:
    """Of one job. `holder_id` runs with its concurrency key; `before_ids` come before it with that key, next first.

    `ahead` due jobs of its kind are taken before it; for one that names an organisation, of those with the same: with
    others it takes turns. Both end at `MAX_BEFORE`.
    """

    next: Next
    holder_id: int | None
    before_ids: Sequence[int]
    ahead: int


def standing(db: Any, job_id: int) -> Any:
    """Where the job stands, as a `Standing`; None where it does not exist."""
    return run(db, _standing(job_id))


def _standing(job_id: int) -> Program[Standing | None]:
    rows = yield Statement(statement("job_standing"), {"id": job_id, "limit": MAX_BEFORE})
    status, is_blocked, is_later, is_paused, live_workers, holder_id, before_ids, ahead, is_served = rows[0]
    if status is None:
        return None
    if status != "queued":
        return Standing(Next.END if status == "running" else Next.NOTHING, None, [], 0)
    for waits, for_what in (
        (is_paused, Next.RESUME),
        (is_blocked, Next.KEY),
        (is_later, Next.TIME),
        (not live_workers, Next.WORKER),
        (not is_served, Next.POOL),
        (holder_id is not None, Next.KEY),
    ):
        if waits:
            return Standing(for_what, holder_id, before_ids, ahead)
    return Standing(Next.CLAIM, holder_id, before_ids, ahead)
