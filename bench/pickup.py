"""Pickup latency: an idle worker, one job at a time; from the return of the commit to the handler's first line."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
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

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.4g}" for name, value in self.figures().items())


def pickup(ground: Ground, system: System, count: int, gap: float, *, place: Place | None = None) -> PickedUp:
    """Start a worker in a fresh place (or the one given); enqueue `count` jobs, one every `gap` seconds.

    Raises `WrongResult` or `Stuck`.
    """
    place = place or system.place(ground)
    system.settle(place)
    with Running(system.worker(place), place.log) as worker:
        return pickup_running(place, system, count, gap, worker)


def pickup_beside(ground: Ground, systems: Sequence[System], count: int, gap: float) -> dict[str, PickedUp]:
    """The same for systems that are all there at once, each in a fresh place: a slow minute is slow for all of them.

    In every `gap` seconds each of them gets one job, at a moment of its own at which the others' workers are idle.
    """
    with ExitStack() as stack:
        stack.enter_context(ground.beside())
        picks = []
        for system in systems:
            place = system.place(ground)
            system.settle(place)
            worker = stack.enter_context(Running(system.worker(place), place.log))
            picks.append(stack.enter_context(_picking(place, system, worker)))
        due = time.monotonic()
        for number in range(count):
            for pick in picks:
                pick.enqueue(number)
                due += gap / len(picks)
                time.sleep(max(0.0, due - time.monotonic()))
        return {system.name: pick.found() for system, pick in zip(systems, picks, strict=True)}


def pickup_running(place: Place, system: System, count: int, gap: float, worker: Running) -> PickedUp:
    """The same with a worker that runs already, on a place whose marks are empty."""
    with _picking(place, system, worker) as pick:
        due = time.monotonic()
        for number in range(count):
            pick.enqueue(number)
            due += gap
            time.sleep(max(0.0, due - time.monotonic()))
        return pick.found()


class _Pick:
    """The jobs that one worker gets one by one, and when each was committed."""

    def __init__(self, place: Place, enqueue: Callable[[int], object]) -> None:
        self._place = place
        self._enqueue = enqueue
        self._committed: list[float] = []

    def enqueue(self, number: int) -> None:
        self._enqueue(number)
        self._committed.append(time.monotonic())

    def found(self) -> PickedUp:
        """Once the last of them has started. Raises `WrongResult` or `Stuck`."""
        numbers = range(len(self._committed))
        wait_for(lambda: self._place.marks.count() >= len(numbers) + 1, "the last job", LAST_SECONDS)
        marks = self._place.marks.require([WARM_UP, *numbers])
        return PickedUp([(mark.at - self._committed[mark.number]) * 1000 for mark in marks if mark.number != WARM_UP])


@contextmanager
def _picking(place: Place, system: System, worker: Running) -> Iterator[_Pick]:
    with system.enqueuer(place) as enqueue:
        enqueue(WARM_UP)
        wait_for(lambda: worker.require_alive() and place.marks.count() >= 1, "the warm-up job", START_SECONDS)
        time.sleep(SETTLE_SECONDS)
        yield _Pick(place, enqueue)
