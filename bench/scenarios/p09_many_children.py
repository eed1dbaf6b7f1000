"""P9: what the supervisor itself costs while it watches 64 children and 1,000 coroutines that wait."""

import time

import psycopg

from bench.figures import Row, at_most, below
from bench.pickup import pickup, pickup_running
from bench.processes import Running, wait_for
from bench.session import Session, figure, of_system, take_turns
from bench.systems.oomph import Oomph
from bench.workers.oomph_app import SLEEP, SLEEP_CHILD, Sleep
from jobs import enqueue_many

CHILDREN, QUICK_CHILDREN = 64, 16
COROUTINES, QUICK_COROUTINES = 1_000, 200
CHILD_MB = 128
SLEEP_SECONDS = 280.0  # longer than the measurement; below the kinds' time-out of five minutes
START_SECONDS = 90.0
SECONDS, QUICK_SECONDS = 20, 5
PICKUPS, QUICK_PICKUPS, GAP = 300, 60, 0.02
RUNNING = "SELECT count(*) FROM background_jobs WHERE status = 'running'"
CORE, P99 = "supervisor_percent_of_a_core", "p99_ms"
IDLE, BUSY = "oomph, nothing else runs", "oomph, all of them wait"


def run(session: Session) -> None:
    children = session.small(CHILDREN, QUICK_CHILDREN)
    coroutines = session.small(COROUTINES, QUICK_COROUTINES)
    picked = session.small(PICKUPS, QUICK_PICKUPS)

    def system(name: str) -> Oomph:
        return Oomph(
            name,
            pools="agent,ingest",
            agent_concurrency=str(coroutines + 100),  # room for those that are picked up
            ingest_concurrency=str(children),
            ingest_memory_mb=str(CHILD_MB),
            ingest_budget_mb=str(children * CHILD_MB),
            shutdown_seconds="0",
        )

    def busy() -> dict[str, float]:
        ours = system(BUSY)
        place = ours.place(session.ground)
        with psycopg.connect(place.url) as db:
            enqueue_many(db, SLEEP_CHILD, [Sleep(seconds=SLEEP_SECONDS)] * children)
            enqueue_many(db, SLEEP, [Sleep(seconds=SLEEP_SECONDS)] * coroutines)
        with Running(ours.worker(place), place.log) as worker:
            with psycopg.connect(place.url, autocommit=True) as db:
                wait_for(
                    lambda: worker.require_alive() and db.execute(RUNNING).fetchone() == (children + coroutines,),
                    f"{children} children and {coroutines} coroutines",
                    START_SECONDS,
                    0.1,
                )
            time.sleep(1)  # the last child has begun to sleep
            before, began = worker.exact_cpu_seconds(whole_tree=False), time.monotonic()
            time.sleep(session.small(SECONDS, QUICK_SECONDS))
            used = (worker.exact_cpu_seconds(whole_tree=False) - before) / (time.monotonic() - began)
            found = pickup_running(place, ours, picked, GAP, worker)
        return {CORE: used * 100, **found.figures()}

    def idle() -> dict[str, float]:
        return pickup(session.ground, system(IDLE), picked, GAP).figures()

    taken = take_turns(session, [of_system(system(IDLE), idle, session), of_system(system(BUSY), busy, session)])
    what = f"{children} children and {coroutines:,} coroutines wait"
    session.tell(Row("P9", f"{what}: supervisor, % of a core", figure(taken, BUSY, CORE), None, below(5)))
    ours, without = figure(taken, BUSY, P99), figure(taken, IDLE, P99)
    session.tell(Row("P9", f"{what}: pickup p99 ms", ours, without, at_most(3)))
