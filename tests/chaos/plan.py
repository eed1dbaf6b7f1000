"""What a chaos run does and when: a pure function of its seed, its length and its number of workers.

The plan says "worker 2, the job at 37 % of what runs there": which job that is, the run decides.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from tests.chaos.app import AGENT, DEADLY, HURRIED, INGEST, SYSTEM, Ordeal


class What(StrEnum):
    ENQUEUE = "enqueue"
    ENQUEUE_AND_ROLL_BACK = "enqueue and roll back"
    KILL_CHILD = "kill a child"
    STOP_CHILD = "stop a child"
    KILL_TEMPLATE = "kill a template"
    STOP_TEMPLATE = "stop a template"
    KILL_SUPERVISOR = "kill a supervisor"
    STOP_SUPERVISOR = "stop a supervisor"
    DEPLOY = "deploy"
    START = "start a supervisor"
    CONTINUE = "continue what was stopped"
    CUT = "cut the network"
    FREEZE = "freeze the network"
    SLOW = "slow the network down"
    HEAL = "heal the network"
    TERMINATE_SESSIONS = "terminate sessions"
    KILL_BACKEND = "kill a backend of PostgreSQL"
    RESTART_POSTGRESQL = "restart PostgreSQL"
    CRASH_POSTGRESQL = "crash PostgreSQL"
    CANCEL = "cancel a job"
    RETRY = "retry a job"
    PAUSE = "pause a kind"
    RESUME = "resume kinds"


@dataclass(frozen=True, slots=True)
class NewJob:
    kind: str
    ordeal: Ordeal
    priority: int = 1
    delay: float = 0.0
    concurrency_key: str | None = None
    dedupe_key: str | None = None
    dedupe_active: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do `at` seconds after the start; `pick` in 0 to 1 chooses among what there is then."""

    at: float
    what: What
    worker: int = 0
    pick: float = 0.0
    value: float = 0.0
    jobs: tuple[NewJob, ...] = field(default=())


# How often each thing is done, in seconds between two on average, and for how long it lasts.
EVERY: dict[What, float] = {
    What.ENQUEUE: 0.6,
    What.ENQUEUE_AND_ROLL_BACK: 4,
    What.KILL_CHILD: 1,
    What.STOP_CHILD: 10,
    What.KILL_TEMPLATE: 13,
    What.STOP_TEMPLATE: 25,
    What.KILL_SUPERVISOR: 16,
    What.STOP_SUPERVISOR: 20,
    What.DEPLOY: 20,
    What.CUT: 16,
    What.FREEZE: 16,
    What.SLOW: 16,
    What.TERMINATE_SESSIONS: 6,
    What.KILL_BACKEND: 60,
    What.RESTART_POSTGRESQL: 60,
    What.CRASH_POSTGRESQL: 60,
    What.CANCEL: 1.5,
    What.RETRY: 2,
    What.PAUSE: 7,
    What.RESUME: 3,
}
LASTS: dict[What, tuple[What, float, float]] = {
    What.STOP_CHILD: (What.CONTINUE, 0.5, 4),
    What.STOP_TEMPLATE: (What.CONTINUE, 1, 8),
    What.STOP_SUPERVISOR: (What.CONTINUE, 0.5, 12),  # the lease is 6 s: some come back in time and some do not
    What.KILL_SUPERVISOR: (What.START, 0.2, 3),
    What.DEPLOY: (What.START, 0.2, 3),
    What.CUT: (What.HEAL, 0.2, 9),
    What.FREEZE: (What.HEAL, 0.2, 9),
    What.SLOW: (What.HEAL, 2, 6),
    What.PAUSE: (What.RESUME, 1, 4),
}
ONCE_AT_LEAST = (What.KILL_SUPERVISOR, What.STOP_SUPERVISOR, What.DEPLOY, What.FREEZE, What.RESTART_POSTGRESQL)


def make_plan(seed: int, seconds: float, workers: int) -> list[Step]:
    """The steps of a run, in order of time."""
    chance = random.Random(seed)
    steps: list[Step] = []
    for what, every in EVERY.items():
        at = chance.expovariate(1 / every)
        if what in ONCE_AT_LEAST:
            at = min(at, chance.uniform(0.1, 0.7) * seconds)
        while at < seconds:
            steps += _episode(chance, what, at, workers)
            at += chance.expovariate(1 / every)
    return sorted(steps, key=lambda step: step.at)


def _episode(chance: random.Random, what: What, at: float, workers: int) -> Iterator[Step]:
    worker, pick, value = chance.randrange(workers), chance.random(), chance.random()
    jobs = tuple(_new_job(chance) for _ in range(chance.randint(1, 8))) if what.value.startswith("enqueue") else ()
    yield Step(at, what, worker, pick, value, jobs)
    if what in LASTS:
        undo, shortest, longest = LASTS[what]
        yield Step(at + chance.uniform(shortest, longest), undo, worker, pick, value)


def _new_job(chance: random.Random) -> NewJob:
    kind, do = _kind_and_deed(chance)
    # Some live long enough to be running again, elsewhere, when a worker that was stopped comes back to them.
    lengths = (0, chance.uniform(0, 0.5), chance.uniform(0, 2), chance.uniform(1, 3), chance.uniform(4, 7))
    seconds = round(min(chance.choices(lengths, (3, 3, 3, 3, 1.5))[0], 7 if do == "wait" else 1), 2)
    mark = "always" if do == "die" and chance.random() < 0.3 else ""
    keyed = chance.random() < 0.25
    deduped = chance.random() < 0.2
    return NewJob(
        kind=kind,
        ordeal=Ordeal(do=do, seconds=seconds, mark=mark),
        priority=chance.choice((0, 1, 1, 2)),
        delay=chance.choice((0, 0, 0, chance.uniform(0, 3))),
        concurrency_key=f"key {chance.randrange(12)}" if keyed else None,
        dedupe_key=f"copy {chance.randrange(4)}" if deduped else None,
        dedupe_active=deduped and chance.random() < 0.5,
    )


def _kind_and_deed(chance: random.Random) -> tuple[str, str]:
    wait = ["wait"] * 6
    deeds = {
        AGENT.kind: [*wait, "fail", "give up", "snooze", "effect", "effect", "block"],
        SYSTEM.kind: [*wait, "fail", "effect"],
        INGEST.kind: [*wait, "fail", "die", "crash", "exit", "vanish", "eat", "helper", "helper", "effect", "effect"],
        DEADLY.kind: ["wait", "die", "die", "die"],
        HURRIED.kind: ["wait"],
    }
    kind = chance.choices(list(deeds), [8, 3, 8, 2, 1])[0]
    return kind, chance.choice(deeds[kind])
