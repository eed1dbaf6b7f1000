"""What waits in the queue, kind by kind, as one bounded look tells it; for metrics, which ask again and again."""

import time
from dataclasses import dataclass
from typing import NamedTuple

from jobs.database import Database

COUNT_LIMIT = 10_000  # jobs of a kind; a queue that long needs no exact figure, and counting it would cost the database
MAX_KINDS = 200
STATEMENT_MS = 1_000  # a look that takes longer says nothing, rather than keep the database from its work


class KindSample(NamedTuple):
    """One declared kind. `oldest_age` in seconds, of what is due; counts are `COUNT_LIMIT` at most."""

    kind: str
    pool: str
    paused: bool
    kill_streak: int
    due: int
    scheduled: int
    blocked: int
    oldest_age: float


@dataclass(frozen=True, slots=True)
class QueueSample:
    """One look; `left_out` kinds are not in it. The database's clock is `clock_offset` seconds ahead, None: unknown."""

    kinds: list[KindSample]
    left_out: int
    clock_offset: float | None
    seconds: float


async def sample_queue(database: Database) -> QueueSample:
    """Look at the queue once. Raises `DatabaseUnavailable`."""
    async with database.transaction() as session:
        await session.fetch("by_index", milliseconds=STATEMENT_MS)
        began, at = time.monotonic(), time.time()
        rows = await session.fetch("queue_sample", kinds=MAX_KINDS, limit=COUNT_LIMIT)
        seconds = time.monotonic() - began
    kinds = [
        KindSample(kind, pool, paused, streak, due, scheduled, blocked, max(0.0, age or 0.0))
        for kind, pool, paused, streak, _, _, due, scheduled, blocked, age in rows
    ]
    if not rows:
        return QueueSample(kinds, 0, None, seconds)
    total, told_at = rows[0][4], rows[0][5]
    # The first row is made when the counts of its kind are there: somewhere between the question and the answer.
    return QueueSample(kinds, total - len(rows), told_at - (at + seconds / 2), seconds)
