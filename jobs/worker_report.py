"""What a worker writes about itself: what it has counted, and how it is. Read by `jobs.activity` and `jobs.reports`."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from jobs.activity import KEPT
from jobs.database import Database

LOCK_MS = 200  # other workers add to the same rows, for a millisecond each
PRUNE_BATCH = 2_000  # rows a minute and worker: more kinds than a minute can have


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What happened of one kind since the last report; histograms as `jobs.activity` has them. Memory in MiB."""

    kind: str
    verdicts: Sequence[int]
    waits: Sequence[int]
    runs: Sequence[int]
    peaks: Sequence[int] = ()
    peak_mb: float | None = None
    limit_mb: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """How a worker is. Memory in MiB; what is told of children is None where there is no pool for them."""

    slots: Mapping[str, Mapping[str, int]]
    memory_mb: float | None = None
    children: int | None = None
    children_mb: float | None = None
    largest_child_mb: float | None = None
    template_up: bool | None = None


async def write_report(database: Database, worker_id: UUID, counts: Sequence[Counts], state: WorkerState) -> float:
    """Add up the counts, and say how the worker is. Returns how many seconds the database's clock is ahead of ours.

    Raises `DatabaseUnavailable`: nothing is known of what was written then, and to add the counts again may count them
    twice.
    """
    async with database.transaction(lock_ms=LOCK_MS) as session:
        sent, began = time.time(), time.monotonic()
        ((told_at,),) = await session.fetch("epoch")
        offset = float(told_at) - (sent + (time.monotonic() - began) / 2)
        parameters = asdict(state) | {"slots": json.dumps(state.slots)}
        await session.fetch("write_worker_state", worker_id=worker_id, **parameters)
        if counts:
            await session.fetch("add_activity", counts=json.dumps([asdict(each) for each in counts]))
    return offset


async def prune_activity(database: Database) -> None:
    """Remove what is older than it is kept, a batch of it. Raises `DatabaseUnavailable`."""
    for seconds, kept in KEPT.items():
        await database.fetch("prune_activity", seconds=seconds, kept=kept, limit=PRUNE_BATCH)
