"""Outages at random, of a worker that lives through all of them: no attempt is charged for any."""

import random
import time

import pytest

from jobs.task import Task
from supervisor.testing import wait_for
from tests.proxy import Proxy
from tests.worker.app import AGENT, INGEST, SYSTEM, Work
from tests.worker.conftest import Bench

pytestmark = pytest.mark.whole

SECONDS = 45.0
LONGEST = 7.0  # of one outage: longer than the lease, which some of them must be
TASKS: list[Task[Work]] = [AGENT, AGENT, SYSTEM, INGEST]
ANSWERS = [b"SELECT", b"INSERT", b"running", b"\x00"]  # whichever comes next with one of these is lost
OURS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name LIKE 'oomph%'"
)


@pytest.mark.timeout(240)
def test_outages_at_random_charge_nothing(bench: Bench) -> None:
    seed = random.randrange(1 << 32)
    choose, until, outages = random.Random(seed), time.monotonic() + SECONDS, 0
    with Proxy(bench.url) as proxy:
        worker = bench.start(
            proxy.url,
            WORKER_CALL_TIMEOUT_SECONDS="1",
            WORKER_LEASE_SECONDS="4",
            WORKER_AGENT_CONCURRENCY=choose.choice(["3", "100"]),
            WORKER_LISTEN=choose.choice(["on", "off"]),
        )
        while time.monotonic() < until:
            for _ in range(choose.randrange(60)):
                bench.put(choose.choice(TASKS), "wait", choose.choice([0, choose.uniform(0, 3)]))
            time.sleep(choose.random())
            trouble = [
                proxy.cut,
                proxy.freeze,
                lambda: proxy.swallow(choose.choice(ANSWERS)),
                lambda: proxy.slow(choose.uniform(0.1, 1.2)),
                lambda: bench.db.execute(OURS),
            ]
            choose.choice(trouble)()
            outages += 1
            time.sleep(choose.choice([choose.random(), choose.uniform(0, LONGEST)]))
            proxy.cut()  # also what is on its way does not arrive any more
            proxy.heal()
            time.sleep(choose.choice([0.05, choose.uniform(0, LONGEST)]))
        left = "SELECT count(*) FROM background_jobs WHERE status IN ('queued', 'running')"
        wait_for(lambda: bench.db.execute(left).fetchone() == (0,), "every job has ended", 120)
    given_back = bench.db.execute("SELECT verdict, charged, count(*) FROM background_attempts GROUP BY 1, 2").fetchall()
    print(f"\nseed {seed}: {outages} outages, {given_back}")
    ends = bench.db.execute("SELECT DISTINCT status, attempt FROM background_jobs").fetchall()
    assert ends == [("succeeded", 1)], worker.text()
    assert {charged for _, charged, _ in given_back} <= {False}
