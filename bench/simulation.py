"""A fleet on paper: what many workers ask of one PostgreSQL, and how late a job starts behind their questions. Pure.

The server is a queue with `cores` clerks. Every worker asks its idle statements (polls, heartbeats and the rest) in a
rhythm of its own. A committed job notifies every worker; whom `supervisor.claiming.herd` lets comes with a claim, one
of these takes the job, the others find nothing; where none comes, the next worker that looks finds it. What a statement
costs the server is measured, not assumed; `docs/bench.md` lists what is assumed.
"""

import heapq
import random
from dataclasses import dataclass

from bench.figures import percentile
from supervisor.claiming.herd import Herd

SECONDS = 30.0  # of simulated time
SEED = 1
LOOK_SECONDS = 1.0  # every worker looks so often
KIND = "noop"
SETTLED = 10  # jobs for each worker, after which everyone knows how often it is needed


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured on real workers."""

    idle_statements: float  # a second and worker
    job_statements: float  # a job, by whoever runs it
    wake_statements: float  # a job, by whoever comes
    idle_seconds: float  # of one core of the server, a statement of an idle worker
    claim_seconds: float  # the same, a statement that a notification causes


@dataclass(frozen=True, slots=True)
class Fleet:
    workers: int
    statements_per_second: float  # all of them together
    come: float  # of them, for a job
    utilisation: float  # of the server's cores; from 1 on it cannot keep up
    pickup_p50_ms: float
    pickup_p99_ms: float


def simulate(workers: int, jobs_per_second: float, cores: int, costs: Costs) -> Fleet:
    """Run the fleet for `SECONDS`. A job is picked up when the first claim that its commit caused has been served."""
    chance = random.Random(SEED)
    asked = [(at, -1) for _ in range(workers) for at in _rhythm(chance, costs.idle_statements)]
    committed = _rhythm(chance, jobs_per_second)
    coming = _who_come(chance, workers, len(committed))
    for job, at in enumerate(committed):
        first = at if coming[job] else at + chance.expovariate(workers / LOOK_SECONDS)
        asked += [(first, job)] * max(1, round(costs.job_statements + max(1, coming[job]) * costs.wake_statements))
    asked.sort()
    free_at = [0.0] * cores
    started: dict[int, float] = {}
    worked = 0.0
    for at, job in asked:
        cost = costs.claim_seconds if job >= 0 else costs.idle_seconds
        served = max(at, heapq.heappop(free_at)) + cost
        worked += cost
        heapq.heappush(free_at, served)
        if job >= 0:
            started.setdefault(job, served)
    late = [(started[job] - at) * 1000 for job, at in enumerate(committed) if job in started] or [0.0]
    busy = worked / (SECONDS * cores)
    come = sum(coming) / max(1, len(coming))
    return Fleet(workers, len(asked) / SECONDS, come, busy, percentile(late, 0.5), percentile(late, 0.99))


def _who_come(chance: random.Random, workers: int, jobs: int) -> list[int]:
    """How many workers claim for each job, all of them idle, of which any may be the first."""
    if not jobs:
        return []
    herd = [Herd(chance, workers) for _ in range(workers)]
    come = []
    for _ in range(SETTLED * workers + jobs):
        comers = [one for one in herd if one.comes(KIND)]
        first = chance.choice(comers or herd)
        first.is_needed([KIND])
        for other in comers:
            if other is not first:
                other.came_in_vain([KIND])
        come.append(len(comers))
    return come[-jobs:]


def _rhythm(chance: random.Random, per_second: float) -> list[float]:
    """Moments at even distances from a random first one."""
    if per_second <= 0:
        return []
    distance = 1 / per_second
    first = chance.random() * distance
    return [first + distance * step for step in range(int((SECONDS - first) / distance) + 1)]
