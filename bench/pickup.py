"""Pickup latency: an idle worker, one job at a time; from the return of the commit to the handler's first line."""

import time
from dataclasses import dataclass

from bench.figures import percentile
from bench.ground import Ground, Place
from bench.processes import Running, wait_for
from bench.systems.base import System

START_SECONDS = 60.0
LAST_SECONDS = 30.0
SETTLE_SECONDS = 1.5  # after the warm-up job: the worker has turned to waiting
WARM_UP = -1


@dataclass(frozen=True, slots=True)
class PickedUp:
    milliseconds: list[float]

    def figures(self) -> dict[str, float]:
        return {f"p{share}_ms": percentile(self.milliseconds, share / 100) for share in (50, 95, 99, 100)}


def pickup(ground: Ground, system: System, count: int, gap: float, *, place: Place | None = None) -> PickedUp:
    """Start a worker in a fresh place (or the one given); enqueue `count` jobs, one every `gap` seconds.

    Raises `WrongResult` or `Stuck`.
    """
    place = place or system.place(ground)
    system.settle(place)
    with Running(system.worker(place), place.log) as worker:
        return pickup_running(place, system, count, gap, worker)


def pickup_running(place: Place, system: System, count: int, gap: float, worker: Running) -> PickedUp:
    """The same with a worker that runs already, on a place whose marks are empty."""
    committed: list[float] = []
    with system.enqueuer(place) as enqueue:
        enqueue(WARM_UP)
        wait_for(lambda: worker.require_alive() and place.marks.count() >= 1, "the warm-up job", START_SECONDS)
        time.sleep(SETTLE_SECONDS)
        due = time.monotonic()
        for number in range(count):
            enqueue(number)
            committed.append(time.monotonic())
            due += gap
            time.sleep(max(0.0, due - time.monotonic()))
    wait_for(lambda: place.marks.count() >= count + 1, "the last job", LAST_SECONDS)
    marks = place.marks.require([WARM_UP, *range(count)])
    return PickedUp([(mark.at - committed[mark.number]) * 1000 for mark in marks if mark.number != WARM_UP])
