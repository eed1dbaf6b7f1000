"""How this worker is, at one moment."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from jobs.task import Pool
from jobs.worker_report import WorkerState
from pools.procfs import slurp
from supervisor.attempts import Attempts

if TYPE_CHECKING:
    from pools.ingest import IngestPool

MIB = 1 << 20
MOVED_MB = 4.0  # less than that is no news


def look(attempts: Attempts, pools: Iterable[Pool], ingest: "IngestPool | None") -> WorkerState:
    """What is told of the worker, apart from its lease."""
    resident = resident_bytes()
    memory_mb = None if resident is None else resident / MIB
    slots = {
        str(pool): {"used": attempts.slots(pool) - attempts.free_slots(pool), "total": attempts.slots(pool)}
        for pool in pools
    }
    if ingest is None:
        return WorkerState(slots=slots, memory_mb=memory_mb)
    children_mb = ingest.children_memory_mb
    return WorkerState(
        slots=slots,
        memory_mb=memory_mb,
        children=ingest.children,
        children_mb=sum(children_mb),
        largest_child_mb=max(children_mb, default=0.0),
        template_up=ingest.template_up,
    )


def is_news(now: WorkerState, told: WorkerState) -> bool:
    """Whether `now` differs from what was told so much that somebody may want to know."""
    return (now.slots, now.children, now.template_up) != (told.slots, told.children, told.template_up) or any(
        abs((getattr(now, name) or 0.0) - (getattr(told, name) or 0.0)) >= MOVED_MB
        for name in ("memory_mb", "children_mb", "largest_child_mb")
    )


def resident_bytes() -> int | None:
    """Resident memory of this process; None elsewhere than on Linux."""
    try:
        return int(slurp("/proc/self/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
