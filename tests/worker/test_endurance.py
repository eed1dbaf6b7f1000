"""Thousands of short lives, some of them violent: nothing may pile up in the supervisor."""

import os
import random
import signal
from contextlib import suppress

import psutil

from jobs import enqueue_many
from supervisor.testing import WorkerProcess, wait_for
from tests.worker.app import DEADLY, INGEST, Work
from tests.worker.conftest import Bench

JOBS = int(os.environ.get("OOMPH_ENDURANCE_JOBS", "400"))  # 10,000 take a quarter of an hour
KILLED_EVERY = 20  # 5 %
TEMPLATE_KILLED_EVERY = 100


def weigh(worker: WorkerProcess) -> tuple[int, int]:
    """Open descriptors, and resident MiB."""
    process = psutil.Process(worker.pid)
    return process.num_fds(), process.memory_info().rss >> 20


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
    files, memory = weigh(worker)
    choose = random.Random(JOBS)
    jobs = enqueue_many(
        bench.db,
        INGEST,
        [Work(do="be killed once" if choose.randrange(KILLED_EVERY) == 0 else "nothing") for _ in range(JOBS)],
    )
    template_kills = 0
    done = 0
    while done < JOBS:
        row = bench.db.execute(
            "SELECT count(*) FROM background_jobs WHERE id = ANY (%s) AND status = 'succeeded'", [jobs]
        ).fetchone()
        assert row is not None
        done = row[0]
        if done // TEMPLATE_KILLED_EVERY > template_kills:
            template_kills += 1
            for process in worker.descendants():
                with suppress(psutil.NoSuchProcess):  # most of them live for milliseconds
                    if "template" in " ".join(process.cmdline()):
                        process.send_signal(signal.SIGKILL)
        assert worker.process.poll() is None, worker.text()[-4000:]
    killed = bench.db.execute("SELECT count(*) FROM background_attempts WHERE verdict = 'killed'").fetchone()
    assert killed is not None
    assert killed[0] > 0
    others = bench.db.execute(
        "SELECT verdict, count(*) FROM background_attempts WHERE verdict NOT IN ('killed', 'spawn_failed') GROUP BY 1"
    ).fetchall()
    assert others == []
    wait_for(lambda: len(worker.descendants()) == 1, "only the template is left", 10)
    wait_for(lambda: not zombies(worker), "the last of the dead are reaped", 5)
    files_after, memory_after = weigh(worker)
    print(f"\n{JOBS} jobs, {killed[0]} kills: {files} -> {files_after} descriptors, {memory} -> {memory_after} MB")
    assert files_after <= files + 3
    assert memory_after <= memory + 15


def test_a_kind_that_always_kills_costs_its_attempts_and_no_more(bench: Bench) -> None:
    """Scenario 31: one job is killed again and again, and its kind goes on."""
    worker = bench.start()
    job_id = bench.put(DEADLY, "be killed")
    bench.wait(job_id, "dead")
    assert bench.attempts(job_id, "verdict, attempt") == [("killed", 1), ("killed", 2), ("killed", 3)]
    assert worker.process.poll() is None
