"""What a worker costs that has nothing to do: memory, CPU, statements."""

import time
from dataclasses import dataclass

from bench.ground import Ground, count_statements, statements
from bench.pickup import START_SECONDS, WARM_UP
from bench.processes import Running, wait_for
from bench.systems.base import OnPostgreSQL, System

SETTLE_SECONDS = 3.0  # after the one job that warms it up


@dataclass(frozen=True, slots=True)
class Idle:
    pss_mb: float
    processes: dict[str, float]
    cpu_seconds_per_hour: float
    statements_per_minute: float  # 0 for a system that asks no PostgreSQL
    claims_per_second: float
    statements_per_second: dict[str, float]

    def figures(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


def idle(ground: Ground, system: System, seconds: float) -> Idle:
    """Start a worker, let it run one job, and watch it for `seconds`. Raises `Stuck`."""
    place = system.place(ground)
    counts = isinstance(system, OnPostgreSQL)
    if counts:
        count_statements(place.url)
    with Running(system.worker(place), place.log) as worker:
        with system.enqueuer(place) as enqueue:
            enqueue(WARM_UP)
            wait_for(lambda: worker.require_alive() and place.marks.count() >= 1, "the warm-up job", START_SECONDS)
        time.sleep(SETTLE_SECONDS)
        before = statements(place.url) if counts else None
        cpu_before, began = worker.exact_cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        cpu = worker.exact_cpu_seconds() - cpu_before
        ran = statements(place.url).since(before) if before is not None else None
        processes = worker.pss_mb()
    return Idle(
        sum(processes.values()),
        processes,
        cpu / took * 3600,
        ran.total / took * 60 if ran is not None else 0.0,
        ran.claims / took if ran is not None else 0.0,
        ran.per_second(took) if ran is not None else {},
    )
