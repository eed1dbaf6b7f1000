"""A bound of organisations holds in a real worker, and what waits for it is claimed when a running one ends."""

import time

import psycopg

from jobs import Job, enqueue_many
from tests.worker.conftest import Bench
from tests.worker.turns_app import BOUNDED, Work


def test_a_bounded_line_goes_on_at_the_end_of_each_job(bench: Bench) -> None:
    """80 jobs of two organisations, two at once: with a look each second alone it would take twenty."""
    bench.start(WORKER_APP="tests.worker.turns_app:app", WORKER_POOLS="agent")
    with psycopg.connect(bench.url) as service:
        jobs = [
            Job(payload=Work(organization=name), organization_id=name) for n in range(80) for name in [f"org {n % 2}"]
        ]
        enqueue_many(service, BOUNDED, jobs)
    began = time.monotonic()
    done = "SELECT count(*) FROM background_jobs WHERE status = 'succeeded'"
    while bench.kit.db.execute(done).fetchone() != (80,):
        assert time.monotonic() - began < 12
        time.sleep(0.02)
    (most,) = bench.kit.db.execute("SELECT max((result ->> 'number')::integer) FROM background_jobs").fetchone() or (0,)
    assert most == 2
