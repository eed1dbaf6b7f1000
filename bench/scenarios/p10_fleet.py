"""P10: what 500 workers would ask of one database: measured on real workers and on stubs, then simulated.

1. One, two and four real workers: statements a second while idle, and statements that each job wakes.
2. Stubs with real connections, up to fifty: how long one notification keeps the server busy.
3. On paper, up to 500 workers, with the costs that the stubs had.
"""

import asyncio
import statistics
import time
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial

import psycopg

from bench.figures import Figure, Row, at_most
from bench.ground import Ground, count_statements, statements
from bench.marks import WrongResult
from bench.pictures import lines
from bench.processes import Running, Stuck
from bench.session import Session, Subject, figure, take_turns
from bench.simulation import Costs, simulate
from bench.stubs import Herd, stubs
from bench.systems.oomph import Oomph
from bench.workers.oomph_app import NOOP, Numbered
from jobs import enqueue

WORKERS, QUICK_WORKERS = (1, 2, 4), (1, 2)
STUBS, QUICK_STUBS = (5, 10, 25, 50), (3, 6)
PAPER = (1, 2, 5, 10, 25, 50, 100, 200, 350, 500)
JOB_RATES = (0.0, 1.0, 10.0)  # a second, over the whole fleet
JOBS, GAP = 20, 0.2
IDLE_SECONDS, QUICK_IDLE_SECONDS = 10, 3
READY_SECONDS = 60.0
SETTLE_SECONDS = 2.0
HERD_SECONDS = 10.0
QUIET_SECONDS = 0.1  # without a further claim, a herd has passed
IDLE_RATE, IDLE_COST = "idle_statements_per_second_per_worker", "postgresql_ms_per_idle_statement"
PER_JOB, CLAIM_COST = "statements_per_job", "postgresql_ms_per_woken_statement"
HERD_MS, TAKEN_MS = "herd_ms", "taken_ms"
FLAT = 1.1  # of the fewest workers' rate: what counting for some seconds can tell apart


def run(session: Session) -> None:
    numbers = QUICK_WORKERS if session.quick else WORKERS
    stubbed = QUICK_STUBS if session.quick else STUBS
    real = [Subject(_workers(n), partial(_real, session, n)) for n in numbers]
    stub = [Subject(_stubs(n), partial(_herded, session.ground, n)) for n in stubbed]
    taken = take_turns(session, [*real, *stub])
    rates = {n: figure(taken, _workers(n), IDLE_RATE) for n in numbers}
    jobs = {n: figure(taken, _workers(n), PER_JOB) for n in numbers}
    for number in numbers[1:]:
        session.tell(Row("P10", "statements/s of an idle worker", rates[number], rates[numbers[0]], at_most(FLAT)))
    for number in numbers:
        session.tell(Row("P10", "statements that one job causes", jobs[number]))
    for number in stubbed:
        session.tell(Row("P10", "commit until the job is taken, ms", figure(taken, _stubs(number), TAKEN_MS)))
        session.tell(Row("P10", "commit until the last claim of the herd, ms", figure(taken, _stubs(number), HERD_MS)))
    woken, own = statistics.linear_regression(list(numbers), [jobs[n].median for n in numbers])
    costs = Costs(
        idle_statements=rates[numbers[-1]].median,
        job_statements=own,
        wake_statements=max(0.0, woken),
        idle_seconds=figure(taken, _workers(numbers[-1]), IDLE_COST).median / 1000,
        claim_seconds=figure(taken, _stubs(stubbed[-1]), CLAIM_COST).median / 1000,
    )
    _on_paper(session, costs)
    herds = {name: [(n, figure(taken, _stubs(n), what).median) for n in stubbed] for name, what in _HERDS.items()}
    lines(session.picture("herd"), "P10: one job, every stub notified", "stubs", "ms after the commit", herds)


_HERDS = {"until the job is taken": TAKEN_MS, "until the last claim is answered": HERD_MS}


def _on_paper(session: Session, costs: Costs) -> None:
    cores = int(session.versions["cores"])
    busy: dict[str, list[tuple[float, float]]] = {}
    for jobs_per_second in JOB_RATES:
        name = f"{jobs_per_second:g} jobs/s"
        fleets = [simulate(number, jobs_per_second, cores, costs) for number in PAPER]
        session.record(f"on paper, {name}", {}, 1, {"costs": asdict(costs), "fleets": [asdict(f) for f in fleets]})
        busy[name] = [(fleet.workers, fleet.utilisation) for fleet in fleets]
        last = fleets[-1]
        label = f"on paper: {last.workers} workers, {name}"
        session.tell(Row("P10", "statements/s, a worker", Figure(label, [last.statements_per_second / last.workers])))
        session.tell(Row("P10", "share of all cores that PostgreSQL needs", Figure(label, [last.utilisation])))
        if jobs_per_second:
            session.tell(Row("P10", "workers that claim for a job", Figure(label, [last.come])))
            session.tell(Row("P10", "pickup p99, ms", Figure(label, [last.pickup_p99_ms])))
    lines(session.picture("paper"), f"P10: a fleet on paper, {cores} cores", "workers", "share of all cores", busy)


def _real(session: Session, number: int) -> dict[str, float]:
    system = Oomph()
    place = system.place(session.ground)
    count_statements(place.url)
    command = system.worker(place, log_level="info")
    seconds = session.small(IDLE_SECONDS, QUICK_IDLE_SECONDS)
    with ExitStack() as stack:
        logs = [place.log.with_suffix(f".{seat}.log") for seat in range(number)]
        for worker in [stack.enter_context(Running(command, log)) for log in logs]:
            worker.wait_log("ready: worker", READY_SECONDS)
        enqueue_one = stack.enter_context(system.enqueuer(place))
        time.sleep(SETTLE_SECONDS)
        before, cpu_before, began = statements(place.url), session.ground.postgresql_cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        cpu, idle_took = session.ground.postgresql_cpu_seconds() - cpu_before, time.monotonic() - began
        idle_ran = statements(place.url).since(before).total
        idle_rate = idle_ran / idle_took
        before, began = statements(place.url), time.monotonic()
        for job in range(JOBS):
            enqueue_one(job)
            time.sleep(GAP)
        ran, took = statements(place.url).since(before).total, time.monotonic() - began
        place.marks.require(range(JOBS))
    caused = ran - idle_rate * took - JOBS  # less the enqueueing itself
    return {IDLE_RATE: idle_rate / number, IDLE_COST: cpu / idle_ran * 1000, PER_JOB: caused / JOBS}


def _herded(ground: Ground, number: int) -> dict[str, float]:
    system = Oomph()
    place = system.place(ground)
    count_statements(place.url)
    return asyncio.run(_herds(ground, place.url, number))


async def _herds(ground: Ground, url: str, number: int) -> dict[str, float]:
    herd = Herd()
    passed, taken = [], []
    async with stubs(url, number, herd):
        with psycopg.connect(url, autocommit=True) as db:
            await asyncio.sleep(SETTLE_SECONDS)
            before, cpu_before = statements(url), ground.postgresql_cpu_seconds()
            for job in range(JOBS):
                await asyncio.sleep(QUIET_SECONDS)  # a late claim of the last herd is none of this one
                had_claims, had_taken = herd.claims, herd.taken
                enqueue(db, NOOP, Numbered(number=job))
                committed = time.monotonic()
                await _passed(herd, had_claims + number, had_taken + 1, committed)
                if herd.taken != had_taken + 1:
                    raise WrongResult(f"one job was enqueued, {herd.taken - had_taken} were claimed by {number} stubs")
                passed.append((max(herd.last_at, herd.first_at) - committed) * 1000)
                taken.append((herd.first_at - committed) * 1000)
            cpu = ground.postgresql_cpu_seconds() - cpu_before  # before a session is made that counts the statements
            ran = statements(url).since(before).total
    return {HERD_MS: sum(passed) / JOBS, TAKEN_MS: sum(taken) / JOBS, CLAIM_COST: cpu / ran * 1000}


async def _passed(herd: Herd, claims: int, taken: int, since: float) -> None:
    """Wait until the job is taken and every stub has claimed, or none has for a while: who polled just then is late."""
    while herd.taken < taken or herd.claims < claims:
        now = time.monotonic()
        if herd.taken >= taken and now - max(herd.last_at, since) > QUIET_SECONDS:
            return
        if now - since > HERD_SECONDS:
            raise Stuck(f"a job was not taken, or {claims - herd.claims} stubs did not come, in {HERD_SECONDS:g} s")
        await asyncio.sleep(0.001)


def _workers(number: int) -> str:
    return f"oomph, {number} worker{'s' if number > 1 else ''}"


def _stubs(number: int) -> str:
    return f"{number} stubs"
