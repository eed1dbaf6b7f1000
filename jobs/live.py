"""What goes on right now: what waits and runs, by kind, and who works. One look of bounded cost, for people who watch.

Like `jobs.reports`, on any connection, and awaited where that is asynchronous; in a transaction that `by_index` bounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from jobs.connection import Program, Row, Statement, run
from jobs.queue_sample import COUNT_LIMIT, MAX_KINDS, STATEMENT_MS
from jobs.rows import MAX_LIMIT
from jobs.sql import statement


@dataclass(frozen=True, slots=True)
class KindNow:
    """One kind. `due`, `scheduled` and `blocked` are `COUNT_LIMIT` at most; `oldest_age` in seconds, of what is due."""

    kind: str
    pool: str
    paused: bool
    kill_streak: int
    due: int
    scheduled: int
    blocked: int
    running: int
    oldest_age: float

    @property
    def waiting(self) -> int:
        return self.due + self.scheduled + self.blocked


@dataclass(frozen=True, slots=True)
class WorkerNow:
    """One worker process. It is `alive` while its lease holds by the database's clock."""

    id: UUID
    host: str
    pid: int
    version: str
    pools: Sequence[str]
    started_at: datetime
    alive: bool
    running: int


@dataclass(frozen=True, slots=True)
class Scene:
    """One look. `left_out` kinds are not in it; `inserted` counts all jobs that were ever written."""

    kinds: Sequence[KindNow]
    left_out: int
    workers: Sequence[WorkerNow]
    inserted: int

    @property
    def open(self) -> int | None:
        """How many jobs have not ended; None where there are too many to count."""
        counts = [count for kind in self.kinds for count in (kind.due, kind.scheduled, kind.blocked)]
        if self.left_out or any(count >= COUNT_LIMIT for count in counts):
            return None
        return sum(counts) + sum(kind.running for kind in self.kinds)


def look(db: Any) -> Any:
    """A `Scene`, in the transaction that `db` has open; its statements are bounded by a second from then on."""
    return run(db, _look())


def _look() -> Program[Scene]:
    yield Statement(statement("by_index"), {"milliseconds": STATEMENT_MS})
    sampled = yield Statement(statement("queue_sample"), {"kinds": MAX_KINDS, "limit": COUNT_LIMIT})
    rows = yield Statement(statement("running_now"), {"limit": COUNT_LIMIT})
    workers = yield Statement(statement("list_workers"), {"limit": MAX_LIMIT})
    inserted = yield Statement(statement("inserted_so_far"), {})
    running: dict[str, int] = {}
    by_worker: dict[UUID | None, int] = {}
    pools: dict[str, str] = {}
    for kind, pool, worker_id, count in rows:
        running[kind] = running.get(kind, 0) + count
        by_worker[worker_id] = by_worker.get(worker_id, 0) + count
        pools[kind] = pool
    kinds = [
        KindNow(kind, pool, paused, streak, due, scheduled, blocked, running.pop(kind, 0), max(0.0, age or 0.0))
        for kind, pool, paused, streak, _, _, due, scheduled, blocked, age in sampled
    ]
    return Scene(
        kinds=[*kinds, *_undeclared(running, pools)],
        left_out=sampled[0][4] - len(sampled) if sampled else 0,
        workers=[_worker(row, by_worker.get(row[0], 0)) for row in workers],
        inserted=inserted[0][0],
    )


def _worker(row: Row, running: int) -> WorkerNow:
    worker_id, host, pid, version, pools, _kinds, started_at, _until, _lost_at, alive, *_ = row
    return WorkerNow(worker_id, host, pid, version, pools, started_at, alive, running)


def _undeclared(running: Mapping[str, int], pools: Mapping[str, str]) -> list[KindNow]:
    """Kinds that run and that the sample does not know: of too many, or set to running by hand."""
    return [KindNow(kind, pools[kind], False, 0, 0, 0, 0, count, 0.0) for kind, count in sorted(running.items())]
