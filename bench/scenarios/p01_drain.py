"""P1: how fast one worker process drains a queue of no-op jobs, every outcome durable."""

from functools import partial

from bench.drain import drain
from bench.figures import Figure, Row, at_least, best
from bench.pictures import bars
from bench.session import Session, figure, of_system, take_turns
from bench.systems.base import System
from bench.systems.oomph import Oomph
from bench.systems.pgqueuer import Pgqueuer
from bench.systems.procrastinate import Procrastinate

JOBS, QUICK_JOBS = 20_000, 2_000
CONCURRENCIES = (200, 500, 1000)
BATCHES = (100, 500)
RATE = "jobs_per_second"


def oomph(concurrency: int) -> Oomph:
    return Oomph(f"oomph c={concurrency}", agent_concurrency=str(concurrency))


def run(session: Session) -> None:
    ours: list[System] = [oomph(concurrency) for concurrency in CONCURRENCIES]
    asyncpg: list[System] = [Pgqueuer(driver="asyncpg", batch_size=size) for size in BATCHES]
    psycopg: list[System] = [Pgqueuer(driver="psycopg", batch_size=size) for size in BATCHES]
    procrastinate: list[System] = [Procrastinate(concurrency=10)]
    theirs = [asyncpg, psycopg, procrastinate] if session.peers else []
    systems = [*ours, *(system for group in theirs for system in group)]
    count = session.small(JOBS, QUICK_JOBS)

    def measured(system: System) -> dict[str, float]:
        return drain(session.ground, system, count).figures()

    taken = take_turns(session, [of_system(s, partial(measured, s), session) for s in systems])
    figures = {system.name: figure(taken, system.name, RATE) for system in systems}
    bars(session.picture("drain"), f"P1: {count:,} no-op jobs, one worker", "jobs a second", list(figures.values()))

    def best_of(group: list[System]) -> Figure:
        return best([figures[system.name] for system in group])

    for group, demand in zip(theirs, (at_least(1.5), at_least(4), at_least(30)), strict=False):
        session.tell(Row("P1", "drain, jobs/s", best_of(ours), best_of(group), demand))
    for system in ours:
        session.tell(Row("P1", "drain, jobs/s", figures[system.name]))
