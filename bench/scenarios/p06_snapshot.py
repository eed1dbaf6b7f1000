"""P6: the drain of P1 and the pickup of P3 while another session has held a snapshot open for 100,000 jobs."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench.drain import drain, drain_idle
from bench.figures import Row, at_least, at_most
from bench.ground import Place
from bench.pickup import pickup
from bench.pictures import bars
from bench.processes import Running
from bench.scenarios.p01_drain import RATE, oomph
from bench.session import Session, Subject, figure, take_turns

CHURNED, QUICK_CHURNED = 100_000, 5_000
STEPS = 10  # the jobs come in so many commits, as over a day
JOBS, QUICK_JOBS = 20_000, 1_000
PICKUPS, QUICK_PICKUPS, GAP = 300, 60, 0.02
CONCURRENCY = 200
P99 = "p99_ms"
FREE, HELD = "oomph, no snapshot", "oomph, a snapshot held"


def run(session: Session) -> None:
    system = oomph(CONCURRENCY)
    count, picked = session.small(JOBS, QUICK_JOBS), session.small(PICKUPS, QUICK_PICKUPS)
    churned = session.small(CHURNED, QUICK_CHURNED)

    def free() -> dict[str, float]:
        drained = drain(session.ground, system, count)
        return {**drained.figures(), **pickup(session.ground, system, picked, GAP).figures()}

    def held() -> dict[str, float]:
        place = system.place(session.ground)
        with _snapshot(place):
            _churn(session, place, churned)
            drained = drain(session.ground, system, count, place=session.ground.place(place.url))
            found = pickup(session.ground, system, picked, GAP, place=session.ground.place(place.url))
        return {**drained.figures(), **found.figures()}

    session.versions.update(system.versions())
    taken = take_turns(session, [Subject(FREE, free, system.settings), Subject(HELD, held, system.settings)])
    rates, late = ([figure(taken, name, what) for name in (HELD, FREE)] for what in (RATE, P99))
    session.tell(Row("P6", "drain, jobs/s", rates[0], rates[1], at_least(0.8)))
    session.tell(Row("P6", "pickup every 20 ms, p99 ms", late[0], late[1], at_most(2)))
    bars(session.picture("drain"), f"P6: after {churned:,} jobs under a snapshot", "jobs a second", rates)


@contextmanager
def _snapshot(place: Place) -> Iterator[None]:
    """A session that looked at the jobs once, as a long report does: no dead row since then can be removed."""
    with psycopg.connect(place.url) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        db.execute("SELECT count(*) FROM background_jobs")
        yield
        db.rollback()


def _churn(session: Session, place: Place, count: int) -> None:
    system = oomph(CONCURRENCY)
    session.say(f"running {count:,} jobs under the snapshot")
    with Running(system.worker(place), place.log) as worker:
        for _ in range(STEPS):
            place.marks.clear()
            drain_idle(session.ground, place, system, count // STEPS, [worker])
