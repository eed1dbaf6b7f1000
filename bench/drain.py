"""Draining a full queue: from the start of the first handler to the last durable outcome."""

import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from bench.ground import Ground, Place
from bench.marks import Mark, WrongResult
from bench.processes import Running, wait_for
from bench.systems.base import Outcomes, System

DRAIN_SECONDS = 180.0  # the slowest peer needs thirty
OUTCOME_SECONDS = 30.0  # after the last handler


@dataclass(frozen=True, slots=True)
class Drained:
    jobs_per_second: float
    seconds: float
    to_first_seconds: float  # from the worker's start, or from the commit where it was running already
    worker_cpu_seconds: float
    postgresql_cpu_seconds: float

    def figures(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in self.__slots__}


def drain(
    ground: Ground, system: System, count: int, *, template: str | None = None, place: Place | None = None
) -> Drained:
    """Fill a fresh place (or the one given) with `count` jobs, start a worker on it, and see every job done once.

    Raises `WrongResult` or `Stuck`.
    """
    place = place or system.place(ground, template)
    numbers = range(count)
    with system.outcomes(place) as outcomes:
        system.fill(place, numbers)
        system.settle(place)
        server_before = ground.postgresql_cpu_seconds()
        with Running(system.worker(place), place.log) as worker:
            ended_at = _wait_done(place, count, outcomes, [worker])
            cpu = worker.cpu_seconds()
        server = ground.postgresql_cpu_seconds() - server_before
        marks = _require_done(place, numbers, outcomes)
    seconds = ended_at - marks[0].at
    return Drained(count / seconds, seconds, marks[0].at - worker.started_at, cpu, server)


def drain_idle(ground: Ground, place: Place, system: System, count: int, workers: Iterable[Running]) -> Drained:
    """The same with workers that wait already; the jobs come in one commit."""
    numbers, workers = range(count), list(workers)
    with ExitStack() as stack:
        outcomes = stack.enter_context(system.outcomes(place))
        cpu_before = sum(worker.cpu_seconds() for worker in workers)
        server_before = ground.postgresql_cpu_seconds()
        system.fill(place, numbers)
        committed_at = time.monotonic()
        ended_at = _wait_done(place, count, outcomes, workers)
        cpu = sum(worker.cpu_seconds() for worker in workers) - cpu_before
        server = ground.postgresql_cpu_seconds() - server_before
        marks = _require_done(place, numbers, outcomes)
    seconds = ended_at - marks[0].at
    return Drained(count / seconds, seconds, marks[0].at - committed_at, cpu, server)


def _wait_done(place: Place, count: int, outcomes: Outcomes, workers: list[Running]) -> float:
    # The file's size is cheap to look at; the database is asked only once every handler has started.
    wait_for(
        lambda: all(worker.require_alive() for worker in workers) and place.marks.count() >= count,
        f"the last of {count} handlers; {place.marks.count()} have started",
        DRAIN_SECONDS,
    )
    asked_at = time.monotonic()

    def is_done() -> bool:
        nonlocal asked_at
        asked_at = time.monotonic()  # what the answer tells was durable before the question
        return not outcomes.any_open()

    wait_for(is_done, f"the last of {count} outcomes", OUTCOME_SECONDS)
    return asked_at


def _require_done(place: Place, numbers: range, outcomes: Outcomes) -> list[Mark]:
    marks = place.marks.require(numbers)
    if (done := outcomes.succeeded()) != len(numbers):
        raise WrongResult(f"{done} of {len(numbers)} jobs are recorded as done once")
    return marks
