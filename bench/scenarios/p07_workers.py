"""P7: more workers on one database: what they drain together, and what each of them asks while there is nothing."""

import time
from contextlib import ExitStack
from functools import partial

from bench.drain import drain_idle
from bench.figures import HOLDS, Figure, Row, below
from bench.ground import Place, count_statements, settle, statements
from bench.pictures import lines
from bench.processes import Running
from bench.scenarios.p01_drain import RATE, oomph
from bench.session import Session, Subject, figure, take_turns

JOBS, QUICK_JOBS = 40_000, 2_000
WORKERS = (1, 2, 4, 8)
CONCURRENCY = 200
READY_SECONDS = 60.0
SETTLE_SECONDS = 2.0
IDLE_SECONDS, QUICK_IDLE_SECONDS = 10, 3
FULL = 0.9  # of a core: PostgreSQL's own work has no more to run on
FALL = 0.8  # where the machine is full, more workers may cost this much and no more
CLAIMS = "idle_claims_per_second_per_worker"
CORE = "postgresql_cores"
MACHINE = "all_cores"


def run(session: Session) -> None:
    subjects = [
        Subject(_name(number), partial(_measure, session, number), oomph(CONCURRENCY).settings) for number in WORKERS
    ]
    taken = take_turns(session, subjects)
    rates = [figure(taken, _name(number), RATE) for number in WORKERS]
    for place in range(1, len(WORKERS)):
        fewer, more = rates[place - 1], rates[place]
        full = any(
            figure(taken, name, CORE).median >= FULL or figure(taken, name, MACHINE).median >= FULL * _cores(session)
            for name in (fewer.label, more.label)
        )
        holds = more.median >= fewer.median * (FALL if full else 1)
        what = f"sum grows, or the cores are full ({'they are' if full else 'they are not'}); jobs/s"
        session.tell(Row("P7", what, more, fewer))
        session.tell(Row("P7", "that holds", Figure(more.label, [float(holds)]), None, HOLDS))
    for number in WORKERS:
        session.tell(Row("P7", "claims/s of an idle worker", figure(taken, _name(number), CLAIMS), None, below(2)))
    points = [(number, rate.median) for number, rate in zip(WORKERS, rates, strict=True)]
    lines(session.picture("workers"), "P7: workers on one database", "workers", "jobs a second", {"oomph": points})


def _measure(session: Session, number: int) -> dict[str, float]:
    system = oomph(CONCURRENCY)
    place = system.place(session.ground)
    settle(place.url)
    with ExitStack() as stack:
        workers = _ready(session, place, number, stack)
        drained = drain_idle(session.ground, place, system, session.small(JOBS, QUICK_JOBS), workers)
    place = system.place(session.ground)
    count_statements(place.url)
    seconds = session.small(IDLE_SECONDS, QUICK_IDLE_SECONDS)
    with ExitStack() as stack:
        _ready(session, place, number, stack)
        time.sleep(SETTLE_SECONDS)
        before, began = statements(place.url), time.monotonic()
        time.sleep(seconds)
        ran, took = statements(place.url).since(before), time.monotonic() - began
    return {
        **drained.figures(),
        CORE: drained.postgresql_cpu_seconds / drained.seconds,
        MACHINE: (drained.postgresql_cpu_seconds + drained.worker_cpu_seconds) / drained.seconds,
        CLAIMS: ran.claims / took / number,
        "idle_statements_per_second_per_worker": ran.total / took / number,
    }


def _ready(session: Session, place: Place, number: int, stack: ExitStack) -> list[Running]:
    """So many workers that claim jobs already."""
    command = oomph(CONCURRENCY).worker(place, log_level="info")
    workers = [stack.enter_context(Running(command, place.log.with_suffix(f".{seat}.log"))) for seat in range(number)]
    for worker in workers:
        worker.wait_log("ready: worker", READY_SECONDS)
    session.check_time()
    return workers


def _cores(session: Session) -> int:
    return int(session.versions["cores"])


def _name(number: int) -> str:
    return f"oomph, {number} worker{'s' if number > 1 else ''}"
