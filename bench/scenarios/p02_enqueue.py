"""P2: enqueueing on one connection: single calls, each with its commit and its notification, and 10,000 in one."""

from collections.abc import Callable
from functools import partial

from bench import enqueueing
from bench.figures import Row, at_least, best
from bench.pictures import bars
from bench.session import Session, Subject, figure, of_system, take_turns
from bench.systems.base import System
from bench.systems.on_redis import Rq
from bench.systems.oomph import Oomph
from bench.systems.pgqueuer import Pgqueuer

CALLS, QUICK_CALLS = 3_000, 300
BULK = 10_000
RATE = "jobs_per_second"
OURS = {
    "oomph psycopg": enqueueing.oomph_sync,
    "oomph psycopg async": enqueueing.oomph_async,
    "oomph asyncpg": enqueueing.oomph_asyncpg,
}
PGQUEUER, RQ, BARE_BULK, OUR_BULK = "pgqueuer asyncpg", "rq", "bare INSERT unnest", "oomph enqueue_many"


def run(session: Session) -> None:
    ours, count = Oomph(), session.small(CALLS, QUICK_CALLS)

    def on(system: System, name: str, measure: Callable[[str, int], float], jobs: int) -> Subject:
        session.versions.update(system.versions())
        return Subject(name, lambda: {RATE: measure(system.place(session.ground).url, jobs)}, {"jobs": str(jobs)})

    subjects = [on(ours, name, measure, count) for name, measure in OURS.items()]
    subjects += [on(ours, OUR_BULK, enqueueing.oomph_bulk, BULK), on(ours, BARE_BULK, enqueueing.bare_bulk, BULK)]
    peers = []
    if session.peers:
        peers.append(PGQUEUER)
        subjects.append(on(Pgqueuer(), PGQUEUER, enqueueing.pgqueuer_asyncpg, count))
        if reason := session.ground.start_redis():
            session.say(f"rq is left out: {reason}")
        else:
            peers.append(RQ)
            subjects.append(of_system(Rq(), partial(_rq, session, count), session))
    taken = take_turns(session, subjects)
    figures = {subject.name: figure(taken, subject.name, RATE) for subject in subjects}
    single = best([figures[name] for name in OURS])
    if peers:
        session.tell(Row("P2", "enqueue, jobs/s", single, best([figures[name] for name in peers]), at_least(1)))
    for name in OURS:
        session.tell(Row("P2", "enqueue, jobs/s", figures[name]))
    session.tell(Row("P2", f"enqueue {BULK:,}, jobs/s", figures[OUR_BULK], figures[BARE_BULK], at_least(0.5)))
    singles = [figures[name] for name in (*OURS, *peers)]
    bars(session.picture("single"), "P2: enqueue, one transaction each", "jobs a second", singles)
    bars(session.picture("bulk"), f"P2: {BULK:,} at once", "rows a second", [figures[OUR_BULK], figures[BARE_BULK]])


def _rq(session: Session, count: int) -> dict[str, float]:
    system = Rq()
    place = system.place(session.ground)
    with system.enqueuer(place) as enqueue:
        return {RATE: enqueueing.calls_per_second(count, enqueue)}
