"""All kinds at one glance: what waits, runs and is dead, for how long, and how the last minutes went.

One bounded look, whatever is in the table; on any connection, like `jobs.reports`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any

from jobs.activity import FAILURES, by_verdict
from jobs.connection import Program, Statement, run
from jobs.outcome import Verdict
from jobs.queue_sample import COUNT_LIMIT, MAX_KINDS
from jobs.sql import statement

RECENT = timedelta(minutes=5)
MAX_UNDECLARED = 50  # kinds: who misspells one misspells few
MAX_RECENT_ROWS = 6 * (MAX_KINDS + 1)  # five whole minutes and the present one


@dataclass(frozen=True, slots=True)
class Load:
    """What there is of one kind, or of all kinds of a pool together.

    `oldest_age` is for how many seconds the oldest due job has waited, 0 without one. `succeeded` and `failed` are the
    attempts of the recent seconds that the overview tells.
    """

    due: int
    scheduled: int
    blocked: int
    running: int
    dead: int
    oldest_age: float
    succeeded: int
    failed: int


@dataclass(frozen=True, slots=True)
class KindOverview:
    """One kind. Of one that no worker has declared, `pool` is that of a job, or empty where somebody paused it."""

    kind: str
    pool: str
    paused: bool
    kill_streak: int
    load: Load
    is_declared: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """One look. A count of a kind that is `count_limit` means: or more. `left_out` kinds are not in it.

    Nor are those undeclared after the first `MAX_UNDECLARED`. `workers` live, and serve the pools `served`.
    """

    kinds: Sequence[KindOverview]
    left_out: int
    count_limit: int
    recent_seconds: float
    workers: int
    served: Sequence[str]

    def pools(self) -> dict[str, Load]:
        """The kinds of each pool together."""
        by_pool = groupby(sorted(self.kinds, key=lambda kind: kind.pool), key=lambda kind: kind.pool)
        return {pool: _together([kind.load for kind in kinds]) for pool, kinds in by_pool}

    def unserved(self) -> dict[str, int]:
        """The pools with due jobs that no live worker serves, and how many are due in each."""
        return {pool: load.due for pool, load in self.pools().items() if load.due and pool and pool not in self.served}


def overview(db: Any) -> Any:
    """How things are: an `Overview`."""
    return run(db, _overview())


def _overview() -> Program[Overview]:
    rows = yield Statement(statement("overview"), {"kinds": MAX_KINDS, "limit": COUNT_LIMIT})
    count_limit = rows[0][5] if rows else COUNT_LIMIT
    others = yield Statement(statement("undeclared"), {"kinds": MAX_UNDECLARED, "limit": count_limit})
    if others:
        count_limit = min(count_limit, others[0][2])
    live = yield Statement(statement("live_workers"), {})
    recent = yield Statement(statement("recent_activity"), {"span": RECENT, "limit": MAX_RECENT_ROWS})
    succeeded: dict[str, int] = {}
    failed: dict[str, int] = {}
    for kind, verdicts, _ in recent:
        for verdict, count in by_verdict(verdicts).items():
            if verdict is Verdict.SUCCEEDED:
                succeeded[kind] = succeeded.get(kind, 0) + count
            elif verdict in FAILURES:
                failed[kind] = failed.get(kind, 0) + count

    def load_of(kind: str, *counts: int, age: float | None) -> Load:
        due, scheduled, blocked, running, dead = (min(count, count_limit) for count in counts)
        ended = succeeded.get(kind, 0), failed.get(kind, 0)
        return Load(due, scheduled, blocked, running, dead, max(0.0, age or 0.0), *ended)

    kinds = []
    for kind, pool, paused, streak, _, _, due, scheduled, blocked, running, dead, age in rows:
        load = load_of(kind, due, scheduled, blocked, running, dead, age=age)
        kinds.append(KindOverview(kind, pool, paused, streak, load, is_declared=pool != ""))
    for kind, pool, _, due, scheduled, dead, age in others:
        load = load_of(kind, due, scheduled, 0, 0, dead, age=age)
        kinds.append(KindOverview(kind, pool, False, 0, load, is_declared=False))
    return Overview(
        kinds,
        left_out=rows[0][4] - len(rows) if rows else 0,
        count_limit=count_limit,
        recent_seconds=recent[0][2] if recent else RECENT.total_seconds(),
        workers=live[0][0],
        served=live[0][1],
    )


def _together(loads: Sequence[Load]) -> Load:
    return Load(
        due=sum(load.due for load in loads),
        scheduled=sum(load.scheduled for load in loads),
        blocked=sum(load.blocked for load in loads),
        running=sum(load.running for load in loads),
        dead=sum(load.dead for load in loads),
        oldest_age=max(load.oldest_age for load in loads),
        succeeded=sum(load.succeeded for load in loads),
        failed=sum(load.failed for load in loads),
    )
