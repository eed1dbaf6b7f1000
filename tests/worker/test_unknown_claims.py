"""An outage takes the answer to a claim, then the lease. Only who lived through it knows that its jobs never began."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta

import psycopg
import pytest

from jobs import enqueue
from supervisor.testing import wait_for
from supervisor.testing.processes import WorkerProcess
from tests.proxy import Proxy
from tests.worker.app import AGENT, Work
from tests.worker.conftest import Bench

LEASE_SECONDS = 8
OUTLIVED = 4 * LEASE_SECONDS  # within it the worker has spared the lost, and has rescued who is left
DRAINING = ("sh", "-c", 'exec "$0" "$@" --drain')
OF_A_LOST_WORKER = """
WITH lost AS (
    INSERT INTO background_workers (id, host, pid, version, pools, kinds, lease_until, lost_at)
    SELECT gen_random_uuid(), 'elsewhere', 1, '0', '{agent}', '{agent-work}', moment, moment
      FROM (SELECT now() - interval '1 hour' AS moment) AS past RETURNING id
)
UPDATE background_jobs SET status = 'running', claim = 1, attempt = 1, started_at = now(), worker_id = lost.id
  FROM lost WHERE background_jobs.id = %s
"""


class Scene:
    """A worker behind a network, and somebody who can hold rows of its jobs."""

    def __init__(self, bench: Bench, stack: ExitStack) -> None:
        self.bench = bench
        self.proxy = stack.enter_context(Proxy(bench.url))
        self._holder = stack.enter_context(psycopg.connect(bench.url))

    def start(self, *, call_timeout: str = "2", through: Sequence[str] = ()) -> WorkerProcess:
        return self.bench.launch(
            self.proxy.url,
            through=through,
            WORKER_LEASE_SECONDS=f"{LEASE_SECONDS}",
            WORKER_CALL_TIMEOUT_SECONDS=call_timeout,
            WORKER_LISTEN="off",
        ).wait_ready()

    def claim_unknown(self, number: int = 1) -> list[int]:
        """Jobs of one claim whose answer is lost, and with it the network."""
        self.proxy.swallow(b"on its way")  # which stands in the answer to the claim alone
        with psycopg.connect(self.bench.url) as db:
            jobs = [enqueue(db, AGENT, Work(text="on its way")) for _ in range(number)]
        for job_id in jobs:
            self.bench.kit.wait_for(job_id, "running")  # it does not begin
        self.proxy.cut()
        return jobs

    def hold(self, job_id: int) -> None:
        self._holder.execute("SELECT FROM background_jobs WHERE id = %s FOR UPDATE", [job_id])

    def let_go(self) -> None:
        self._holder.rollback()

    def come_back(self, worker: WorkerProcess) -> None:
        """Under another id."""
        worker.wait_log("lost its lease")
        self.proxy.heal()
        worker.wait_log("the worker goes on as")

    def job_of_a_lost_worker(self) -> int:
        job_id = self.bench.put(AGENT, run_after=timedelta(hours=1))
        self.bench.db.execute(OF_A_LOST_WORKER, [job_id])
        return job_id

    def require_given_back(self, *jobs: int) -> None:
        """Perhaps again by a shutdown; and run, uncharged."""
        for job_id in jobs:
            self.bench.wait(job_id, "succeeded", seconds=OUTLIVED)
            assert set(self.bench.attempts(job_id, "verdict, charged")) == {("released", False)}
            assert self.bench.job(job_id, "attempt") == (1,)


@pytest.fixture
def scene(bench: Bench) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(bench, stack)


def test_they_are_given_back_uncharged(scene: Scene) -> None:
    worker = scene.start()
    (job_id,) = scene.claim_unknown()
    scene.hold(job_id)  # nor can it be given back before the worker has another lease
    scene.come_back(worker)
    later = scene.bench.put(AGENT, run_after=timedelta(seconds=2))
    scene.bench.wait(later, "succeeded")  # until then, what was begun under the lost lease is over
    scene.let_go()
    scene.require_given_back(job_id)


@pytest.mark.parametrize("seconds", ["0.5", "3"])
def test_one_that_somebody_holds_keeps_the_worker_from_nothing(scene: Scene, seconds: str) -> None:
    """Not from the others of that claim, nor from those of other workers, however short its calls are bounded."""
    worker = scene.start(call_timeout=seconds)
    held, *others = scene.claim_unknown(4)
    scene.hold(held)
    scene.come_back(worker)
    rescued = scene.job_of_a_lost_worker()
    scene.require_given_back(*others)
    scene.bench.wait(rescued, "succeeded", seconds=OUTLIVED)
    assert scene.bench.attempts(held) == []
    scene.let_go()
    scene.bench.wait(held, "succeeded", seconds=OUTLIVED)


def test_what_cannot_be_given_back_is_rescued_in_the_end(scene: Scene) -> None:
    scene.bench.db.execute("ALTER TABLE background_attempts ADD CHECK (verdict <> 'released')")
    worker = scene.start()
    (job_id,) = scene.claim_unknown()
    scene.come_back(worker)
    for each in (scene.job_of_a_lost_worker(), job_id):
        scene.bench.wait(each, "succeeded", seconds=OUTLIVED)
        assert scene.bench.attempts(each) == [("worker_lost",)]


def test_a_refund_that_is_never_taken_is_rescued_in_the_end(scene: Scene) -> None:
    """While it is offered; with one worker there is nobody else to end the job."""
    worker = scene.start()
    job_id = scene.bench.put(AGENT, "wait", 2 * LEASE_SECONDS)
    scene.bench.wait(job_id, "running")
    scene.bench.db.execute(
        "CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'not now' USING ERRCODE = 'too_many_connections'; END $$;"
        "CREATE TRIGGER never BEFORE INSERT ON background_attempts FOR EACH ROW WHEN (NEW.verdict = 'lease_lost') "
        "EXECUTE FUNCTION never()"
    )
    scene.proxy.cut()
    scene.come_back(worker)
    wait_for(lambda: scene.bench.attempts(job_id) == [("worker_lost",)], "its rescue", OUTLIVED)


@pytest.mark.parametrize("is_held", [False, True])
def test_a_shutdown_just_after_the_comeback_gives_them_back(scene: Scene, is_held: bool) -> None:
    worker = scene.start()
    (job_id,) = scene.claim_unknown()
    if is_held:
        scene.hold(job_id)
    scene.come_back(worker)
    worker.signal(signal.SIGTERM)
    worker.wait_log("draining")
    scene.let_go()
    assert worker.wait() == 0
    scene.bench.start()
    scene.require_given_back(job_id)


def test_a_worker_that_ends_when_nothing_is_left_runs_them_first(scene: Scene) -> None:
    long = scene.bench.put(AGENT, "wait", 120)  # keeps it at work until the outage
    worker = scene.start(through=DRAINING)
    scene.bench.wait(long, "running")
    (job_id,) = scene.claim_unknown()
    worker.wait_log("lost its lease")
    scene.bench.db.execute("UPDATE background_jobs SET status = 'cancelled', finished_at = now() WHERE id = %s", [long])
    scene.hold(job_id)
    scene.come_back(worker)
    scene.let_go()
    assert worker.wait(OUTLIVED) == 0
    scene.require_given_back(job_id)
