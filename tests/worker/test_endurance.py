"""Thousands of short lives, some of them violent: nothing may pile up in the supervisor."""

import os
import random
import signal
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

import psutil

from jobs import enqueue_many
from jobs.database import MAX_CONNECTIONS
from supervisor.testing import WorkerProcess, wait_for
from tests.worker.app import DEADLY, INGEST, Work
from tests.worker.conftest import Bench

JOBS = int(os.environ.get("OOMPH_ENDURANCE_JOBS", "400"))  # 10,000 take a quarter of an hour
KILLED_EVERY = 20  # 5 %
TEMPLATE_KILLED_EVERY = 100


def descriptors(worker: WorkerProcess) -> list[str]:
    """What the supervisor has open."""
    found = []
    for each in Path(f"/proc/{worker.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(each.readlink()))
    return sorted(found)


def memory_mb(worker: WorkerProcess) -> int:
    return psutil.Process(worker.pid).memory_info().rss >> 20


def wait_idle(worker: WorkerProcess, killed: AbstractSet[int] = frozenset()) -> None:
    """Until there is a template that serves, none of those that were `killed`, and no child any more.

    One that waits at its gate for the next job has four descriptors, as has one that waits to be born: among them is
    the pipe for its output, and nobody else has one.
    """

    def is_idle() -> bool:
        titles = {process.pid: " ".join(process.cmdline()) for process in worker.descendants()}
        return (
            len(titles) == 1
            and all(title.startswith("oomph: template") for title in titles.values())
            and not titles.keys() & killed
            and not any(each.startswith("pipe:") for each in descriptors(worker))
        )

    def looks_idle() -> bool:
        try:
            return is_idle()
        except psutil.NoSuchProcess:  # one that has just ended
            return False

    wait_for(looks_idle, "only a template that serves is left")


def zombies(worker: WorkerProcess) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(worker.pid).children():
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def test_after_many_jobs_with_random_kills_nothing_has_piled_up(bench: Bench) -> None:
    """Scenario 39: tiny jobs, 5 % random SIGKILL, 1 % template kills."""
    worker = bench.start(WORKER_PAUSE_AFTER_KILLS="1000", WORKER_INGEST_CONCURRENCY="4", WORKER_RETRY_DELAY_SECONDS="0")
    warm_up = [bench.put(INGEST) for _ in range(50)]
    for job_id in warm_up:
        bench.wait(job_id, "succeeded", seconds=60)
    wait_idle(worker)
    files, memory = descriptors(worker), memory_mb(worker)
    choose = random.Random(JOBS)
    jobs = enqueue_many(
        bench.db,
        INGEST,
        [Work(do="be killed once" if choose.randrange(KILLED_EVERY) == 0 else "nothing") for _ in range(JOBS)],
    )
    template_kills, killed_templates = 0, set()
    done = 0
    while done < JOBS:
        row = bench.db.execute(
            "SELECT count(*) FROM background_jobs WHERE id = ANY (%s) AND status = 'succeeded'", [jobs]
        ).fetchone()
        assert row is not None
        done = row[0]
        if done // TEMPLATE_KILLED_EVERY > template_kills:
            template_kills += 1  # also after the last job: whoever comes up then is weighed
            for process in worker.descendants():
                with suppress(psutil.NoSuchProcess):  # most of them live for milliseconds
                    if "template" in " ".join(process.cmdline()):
                        process.send_signal(signal.SIGKILL)
                        killed_templates.add(process.pid)
        assert worker.process.poll() is None, worker.text()[-4000:]
    killed = bench.db.execute("SELECT count(*) FROM background_attempts WHERE verdict = 'killed'").fetchone()
    assert killed is not None
    assert killed[0] > 0
    others = bench.db.execute(
        "SELECT verdict, evidence ->> 'why', count(*) FROM background_attempts "
        "WHERE verdict NOT IN ('killed', 'spawn_failed', 'released') GROUP BY 1, 2"
    ).fetchall()
    assert others == []
    wait_idle(worker, killed_templates)
    wait_for(lambda: not zombies(worker), "the last of the dead are reaped", 5)
    files_after, memory_after = descriptors(worker), memory_mb(worker)
    print(
        f"\n{JOBS} jobs, {killed[0]} kills: {len(files)} -> {len(files_after)} descriptors, "
        f"{memory} -> {memory_after} MB"
    )
    # The pool starts with one connection and opens the others when they are wanted.
    assert len(files_after) < len(files) + MAX_CONNECTIONS, (files, files_after)
    assert memory_after <= memory + 15


def test_a_kind_that_always_kills_costs_its_attempts_and_no_more(bench: Bench) -> None:
    """Scenario 31: one job is killed again and again, and its kind goes on."""
    worker = bench.start()
    job_id = bench.put(DEADLY, "be killed")
    bench.wait(job_id, "dead")
    assert bench.attempts(job_id, "verdict, attempt") == [("killed", 1), ("killed", 2), ("killed", 3)]
    assert worker.process.poll() is None
