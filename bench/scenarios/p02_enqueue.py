"""P2: enqueueing on one connection: single calls, each with its commit and its notification, and 10,000 in one."""

from collections.abc import Callable
from functools import partial

from bench import enqueueing
from bench.figures import Figure, Row, at_least, best
from bench.pictures import bars
from bench.session import Session, Subject, figure, take_turns
from bench.systems.on_redis import Rq
from bench.systems.oomph import Oomph
from bench.systems.pgqueuer import Pgqueuer

CALLS, QUICK_CALLS = 3_000, 300
BULK = 10_000
BULK_TURNS = 3  # a run: each is over within half a second
RATE = "jobs_per_second"
PSYCOPG, PSYCOPG_ASYNC, ASYNCPG = OURS = ("oomph psycopg", "oomph psycopg async", "oomph asyncpg")
PGQUEUER, RQ, BARE_BULK, OUR_BULK = "pgqueuer asyncpg", "rq", "bare INSERT unnest", "oomph enqueue_many"


def run(session: Session) -> None:
    peers = []
    if session.peers:
        peers.append(PGQUEUER)
        if reason := session.ground.start_redis():
            session.say(f"rq is left out: {reason}")
        else:
            peers.append(RQ)
    for system in (Oomph(), Pgqueuer(), Rq()):
        session.versions.update(system.versions())
    singles = _singles(session, peers)
    ours, theirs = singles[: len(OURS)], singles[len(OURS) :]
    if theirs:
        session.tell(Row("P2", "enqueue, jobs/s", best(ours), best(theirs), at_least(1)))
    for single in ours:
        session.tell(Row("P2", "enqueue, jobs/s", single))
    bars(session.picture("single"), "P2: enqueue, one transaction each", "jobs a second", singles)

    def of(measure: Callable[[str, int], float]) -> dict[str, float]:
        return {RATE: measure(Oomph().place(session.ground).url, BULK)}

    bulk = [
        Subject(OUR_BULK, partial(of, enqueueing.oomph_bulk)),
        Subject(BARE_BULK, partial(of, enqueueing.bare_bulk)),
    ]
    taken = take_turns(session, bulk, BULK_TURNS * session.runs)
    bulks = [figure(taken, subject.name, RATE) for subject in bulk]
    session.tell(Row("P2", f"enqueue {BULK:,}, jobs/s", *bulks, at_least(0.5)))
    bars(session.picture("bulk"), f"P2: {BULK:,} at once", "rows a second", bulks)


def _singles(session: Session, peers: list[str]) -> list[Figure]:
    """Ours, then the peers'. In each run they take turns of a hundred calls."""
    count = session.small(CALLS, QUICK_CALLS)
    rates: dict[str, list[float]] = {name: [] for name in (*OURS, *peers)}
    for run in range(1, session.runs + 1):
        session.check_time()
        with session.ground.beside():
            url = Oomph().place(session.ground).url
            subjects = {
                PSYCOPG: enqueueing.oomph_sync(url),
                PSYCOPG_ASYNC: enqueueing.on_uvloop(enqueueing.oomph_async(url)),
                ASYNCPG: enqueueing.on_uvloop(enqueueing.oomph_asyncpg(url)),
            }
            if PGQUEUER in peers:
                theirs = Pgqueuer().place(session.ground).url
                subjects[PGQUEUER] = enqueueing.on_uvloop(enqueueing.pgqueuer_asyncpg(theirs))
            if RQ in peers:
                rq = Rq()
                subjects[RQ] = enqueueing.each(rq.enqueuer(rq.place(session.ground)))
            reached = enqueueing.calls_per_second(subjects, count)
            enqueueing.require_jobs(url, len(OURS) * (count + enqueueing.TURN))
        for name, rate in reached.items():
            rates[name].append(rate)
            session.record(name, {"jobs": str(count)}, run, {RATE: rate})
        session.say(f"run {run}: " + ", ".join(f"{name} {rate:,.0f}/s" for name, rate in reached.items()))
    return [Figure(name, values) for name, values in rates.items()]
