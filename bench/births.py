"""One fresh process for every job: the time from one handler's start to the next."""

import math
from dataclasses import dataclass
from itertools import pairwise

import psycopg

from bench.figures import percentile
from bench.ground import Ground, Place, monotonic_of
from bench.marks import Mark, Marks, WrongResult
from bench.processes import Command, Running, wait_for
from bench.systems.base import System
from bench.workers.oomph_app import BIRTH, births_path

BIRTH_SECONDS = 300.0
RECORDED_SECONDS = 30.0
HALF_TICK = 0.005  # a moment of birth is cut off to whole ticks of 10 ms
TIMES = (
    "SELECT (payload->>'number')::integer, extract(epoch FROM started_at)::float8, "
    "extract(epoch FROM finished_at)::float8 FROM background_jobs WHERE finished_at IS NOT NULL"
)


@dataclass(frozen=True, slots=True)
class Births:
    ms_per_job: float
    gap_p50_ms: float
    gap_p99_ms: float
    parts: dict[str, float]  # means, in ms, as far as they can be seen from outside

    def figures(self) -> dict[str, object]:
        return {
            "ms_per_job": self.ms_per_job,
            "gap_p50_ms": self.gap_p50_ms,
            "gap_p99_ms": self.gap_p99_ms,
            "parts": self.parts,
        }


def births(ground: Ground, system: System, count: int, *, workers: int = 1) -> Births:
    """Fill a place, start `workers` workers, and see each job run once in a process of its own."""
    place = system.place(ground)
    with system.outcomes(place) as outcomes:
        system.fill(place, range(count))
        system.settle(place)
        running = [Running(system.worker(place), place.log.with_suffix(f".{number}.log")) for number in range(workers)]
        try:
            wait_for(
                lambda: all(worker.require_alive() for worker in running) and place.marks.count() >= count,
                f"the last of {count} births; {place.marks.count()} so far",
                BIRTH_SECONDS,
            )
            wait_for(lambda: outcomes.succeeded() >= count, "the last outcome", RECORDED_SECONDS)
        finally:
            for worker in running:
                worker.stop()
    return _spaced(place.marks.require(range(count)), _parts(place))


def forked(ground: Ground, count: int, modules: str, at_once: int) -> Births:
    """The limit: fork, exit and wait of a process with the same modules, `at_once` children in flight, no queue."""
    place = ground.place("")
    arguments = ["-m", "bench.workers.bare_forks", str(count), str(at_once), modules]
    return _run_to_end(place, Command(arguments, place.environment), count)


def fresh(ground: Ground, count: int, modules: str) -> Births:
    """A fresh interpreter that imports the same modules, one after the other."""
    place = ground.place("")
    arguments = ["-m", "bench.workers.fresh_interpreters", str(count), modules]
    return _run_to_end(place, Command(arguments, place.environment), count)


def _run_to_end(place: Place, command: Command, count: int) -> Births:
    with Running(command, place.log) as running:
        wait_for(
            lambda: place.marks.count() >= count or not running.require_alive(), f"{count} processes", BIRTH_SECONDS
        )
    return _spaced(place.marks.require(range(count)), {})


def _spaced(marks: list[Mark], parts: dict[str, float]) -> Births:
    if len({mark.pid for mark in marks}) != len(marks):
        raise WrongResult(f"{len(marks)} jobs ran in {len({mark.pid for mark in marks})} processes")
    gaps = [(later.at - earlier.at) * 1000 for earlier, later in pairwise(marks)]
    span = (marks[-1].at - marks[0].at) * 1000
    return Births(span / len(gaps), percentile(gaps, 0.5), percentile(gaps, 0.99), parts)


def _parts(place: Place) -> dict[str, float]:
    """Where a child of Oomph spends its time; empty for other systems."""
    path = births_path(place.marks.path)
    if not path.exists():
        return {}
    started = {mark.number: mark.at for mark in Marks.of(place.marks.path)}
    born = {number: (cpu, at, faults) for number, cpu, at, faults in BIRTH.iter_unpack(path.read_bytes())}
    with psycopg.connect(place.url) as db:
        times = {number: (claimed, ended) for number, claimed, ended in db.execute(TIMES).fetchall()}
    numbers = sorted(times)
    since_claim = [started[n] - monotonic_of(times[n][0]) for n in numbers]
    since_fork = [started[n] - (born[n][1] + HALF_TICK) for n in numbers]
    to_outcome = [monotonic_of(times[n][1]) - started[n] for n in numbers]
    return {
        "claim to handler, ms": _mean(since_claim) * 1000,
        "claim to fork, ms": (_mean(since_claim) - _mean(since_fork)) * 1000,
        "fork to handler, ms": _mean(since_fork) * 1000,
        "of it CPU of the child, ms": _mean([born[n][0] for n in numbers]) * 1000,
        "page faults until the handler": _mean([born[n][2] for n in numbers]),
        "handler to outcome, ms": _mean(to_outcome) * 1000,
    }


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
