"""Breaks real workers in every way at random, heals everything, and proves from the history that nothing went wrong.

The same seed makes the same plan of actions; what it meets depends on the machine's timing. Exit status 0 only with 0
violations.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import time
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console

from jobs import enqueue, enqueue_many
from tests.chaos.acts import Actor
from tests.chaos.app import AGENT, GRIDS, INGEST, SKIPPING, TICKS, Ordeal
from tests.chaos.checker import check
from tests.chaos.history import History, Slots, read
from tests.chaos.plan import make_plan
from tests.chaos.report import Resources, figures, tell
from tests.chaos.stage import SLOTS, Stage

DRAIN_SECONDS = 150.0  # for what is left, on a machine with other work; most take twenty
SLOTS_SECONDS = 40.0
CALM_JOBS = 20  # each is killed at its first two attempts
END_SECONDS = 40.0
LEFT = "SELECT count(*) FROM background_jobs WHERE kind <> ALL (%s) AND status IN ('queued', 'running')"
AT_ONCE = "SELECT count(*) FROM background_jobs WHERE status = 'running' AND pool = %s"


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and nothing is left running
    console = Console(stderr=arguments.json, soft_wrap=True)
    folder = Path("/tmp") / f"oomph-chaos-{uuid.uuid4().hex[:10]}"
    folder.mkdir(mode=0o755)
    console.print(f"seed {arguments.seed}, {arguments.seconds:g} s, {arguments.workers} workers, in {folder}")
    with Stage(folder, arguments.workers) as stage:
        history, told = _run(stage, arguments, console)
    violations = check(history)
    told = {"seed": arguments.seed, "seconds": arguments.seconds, **told, "violations": len(violations)}
    if arguments.json:
        print(json.dumps({**told, "told": [str(violation) for violation in violations]}))
    tell(told, violations, console)
    if violations or arguments.keep:
        console.print(f"the workers' logs are in {folder}")
        shutil.rmtree(folder / "postgresql")
    else:
        shutil.rmtree(folder)
    return 1 if violations else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long things are broken (60)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="chooses what and when")
    parser.add_argument("--workers", type=int, default=3, help="worker processes (3)")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument("--keep", action="store_true", help="keep the workers' logs also without a violation")
    arguments = parser.parse_args()
    if arguments.seconds <= 0 or arguments.workers < 1:
        parser.error("--seconds and --workers must be positive")
    return arguments


def _run(stage: Stage, arguments: argparse.Namespace, console: Console) -> tuple[History, dict[str, Any]]:
    actor = Actor(stage)
    before = _resources(stage)
    started = time.monotonic()

    def say(what: str) -> None:
        console.print(f"{time.monotonic() - started:7.2f} {what}", highlight=False, markup=False)

    for step in make_plan(arguments.seed, arguments.seconds, arguments.workers):
        if (early := started + step.at - time.monotonic()) > 0:
            time.sleep(early)
        say(actor.do(step))
        for seat in stage.seats:
            actor.tend(seat)
    _drain(stage, actor)
    say("healed and drained; children are killed in calm")
    calm_at = time.time()
    _kill_in_calm(stage, actor)
    say("every slot is filled")
    slots = _fill_slots(stage)
    after = _resources(stage)
    drained_at = time.time()
    say("the workers are told to end")
    _end(stage)
    say("the history is checked")
    history = read(
        stage.db,
        enqueued=frozenset(actor.enqueued),
        rolled_back=frozenset(actor.rolled_back),
        halts=stage.halts,
        troubles=stage.troubles,
        outages=[(0.0, calm_at)],
        sightings=stage.processes.sightings,
        endless_kinds=frozenset(task.kind for task in TICKS),
        drained_at=drained_at,
        slots=slots,
        exits=stage.exits,
        grids=GRIDS,
        skipping=SKIPPING,
    )
    return history, {
        **figures(history, actor.kills, calm_at),
        "done": dict(actor.done.most_common()),
        "supervisors before": asdict(before),
        "supervisors after": asdict(after),
        "seconds in all": round(time.monotonic() - started, 1),
    }


def _resources(stage: Stage) -> Resources:
    return Resources.of([seat.process.pid for seat in stage.seats if seat.process is not None])


def _drain(stage: Stage, actor: Actor, every: float = 0.5) -> None:
    """Heal everything, and go on doing so, until no job is left or the time is over."""
    until = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < until:
        actor.heal_everything()
        try:
            row = stage.db.execute(LEFT, [[task.kind for task in TICKS]]).fetchone()
            if row == (0,):
                return
        except psycopg.OperationalError:
            pass  # PostgreSQL is still recovering
        time.sleep(every)


def _kill_in_calm(stage: Stage, actor: Actor) -> None:
    """One child after another is killed while nothing else is wrong: how soon is that committed?"""
    for _ in range(CALM_JOBS):
        enqueue(stage.db, INGEST, Ordeal(do="die", seconds=0.05))
        _drain(stage, actor, every=0.02)


def _fill_slots(stage: Stage) -> list[Slots]:
    """Fill every slot of two pools: one that chaos has lost for good stays empty."""
    expected = {task.pool: SLOTS[task.pool] * len(stage.seats) for task in (AGENT, INGEST)}
    for task in (AGENT, INGEST):
        enqueue_many(stage.db, task, [Ordeal(seconds=3) for _ in range(expected[task.pool] * 2)])
    most = dict.fromkeys(expected, 0)
    until = time.monotonic() + SLOTS_SECONDS
    while time.monotonic() < until:
        for pool in most:
            row = stage.db.execute(AT_ONCE, [pool]).fetchone()
            most[pool] = max(most[pool], row[0] if row else 0)
        row = stage.db.execute(LEFT, [[task.kind for task in TICKS]]).fetchone()
        if row == (0,):
            break
        time.sleep(0.05)
    return [Slots(pool, expected[pool], most[pool]) for pool in expected]


def _end(stage: Stage) -> None:
    """Tell every worker to end, as an operator does, and note how each of them did."""
    for seat in stage.seats:
        stage.send(seat, signal.SIGTERM)
    until = time.monotonic() + END_SECONDS
    while any(seat.process is not None for seat in stage.seats) and time.monotonic() < until:
        for seat in stage.seats:
            stage.collect(seat)
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
