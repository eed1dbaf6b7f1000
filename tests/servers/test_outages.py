"""A server that is restarted, away for long, or full: workers wait, say so, come back, lose and charge nothing."""

import signal
from contextlib import ExitStack

import psycopg
import pytest

from supervisor.testing.waiting import wait_for
from tests.servers.cluster import Cluster
from tests.servers.guests import Guests, said_too_often
from tests.worker.app import AGENT, INGEST

pytestmark = pytest.mark.whole

HOW = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


@pytest.mark.parametrize("how", HOW)
def test_a_restart_within_the_lease_is_no_event(cluster: Cluster, guests: Guests, how: str) -> None:
    # An outcome waits in vain once its call does, and the lease outlasts that by far.
    worker = guests.start(WORKER_LEASE_SECONDS="30", WORKER_CALL_TIMEOUT_SECONDS="2")
    # None ends before all have begun, which takes a busy host a while.
    ends_meanwhile, goes_on = guests.put_everywhere("wait", 4), guests.put_everywhere("wait", 6)
    guests.wait([*ends_meanwhile, *goes_on], "running")
    cluster.stop(HOW[how])
    worker.wait_log("its outcome waits for the database")
    cluster.start()
    new = guests.put_everywhere()
    guests.wait([*ends_meanwhile, *goes_on, *new], "succeeded")
    assert guests.claims([*ends_meanwhile, *goes_on]) == {1}
    assert worker.stop() == 0
    assert "lost its lease" not in worker.text()
    assert said_too_often(worker) == {}


def test_an_outage_longer_than_the_lease_charges_nothing(cluster: Cluster, guests: Guests) -> None:
    """Not what it stopped, and not what came to its end and could not say so; in no pool."""
    worker = guests.start(WORKER_CALL_TIMEOUT_SECONDS="2", WORKER_LEASE_SECONDS="8")
    # Some end before the lease does, and after all have begun, which takes a busy host a while; the others do not.
    stopped, unsaid = guests.put_everywhere("wait", 14), guests.put_everywhere("wait", 4)
    guests.wait([*stopped, *unsaid], "running")
    cluster.stop(signal.SIGQUIT)
    for job_id in unsaid:
        worker.wait_log(f"job {job_id}: its outcome is dropped with the lost lease")
    cluster.start()
    guests.wait([*stopped, *unsaid], "succeeded", 60)
    assert guests.charged([*stopped, *unsaid]) == {1}
    assert guests.claims(stopped) == {2}
    assert guests.look("SELECT DISTINCT verdict, charged FROM background_attempts") == [("lease_lost", False)]
    assert said_too_often(worker) == {}
    assert worker.stop() == 0


def test_a_server_without_a_connection_to_spare_is_waited_for(cluster: Cluster, guests: Guests) -> None:
    """Whoever had a connection that broke stands in line with everybody."""
    cluster.stop()
    cluster.settings["max_connections"] = "12"
    cluster.start()
    worker = guests.start(WORKER_LEASE_SECONDS="4")
    job_id = guests.put(AGENT, "wait", 8)
    guests.wait([job_id], "running")
    with ExitStack() as stack:

        def take_all() -> bool:
            try:
                while True:
                    stack.enter_context(psycopg.connect(cluster.url))
            except psycopg.OperationalError:
                return True

        with psycopg.connect(cluster.url, autocommit=True) as admin:
            ours = "FROM pg_stat_activity WHERE application_name LIKE 'oomph%'"
            take_all()

            def has_none() -> bool:
                admin.execute(f"SELECT pg_terminate_backend(pid) {ours}")
                take_all()
                return admin.execute(f"SELECT 1 {ours}").fetchone() is None

            wait_for(has_none, "no connection of the worker")
            worker.wait_log("too many clients already")
            worker.wait_log("lost its lease")
    worker.wait_log("the worker goes on as")
    guests.wait([job_id, *guests.put_everywhere()], "succeeded", 60)
    assert guests.charged([job_id]) == {1}
    assert said_too_often(worker) == {}
    assert worker.stop() == 0


def test_a_worker_never_has_more_than_six_connections(cluster: Cluster, guests: Guests) -> None:
    """As the README has it: three in the pool, one each for claims, the lease and LISTEN."""
    worker = guests.start(WORKER_HTTP="0", WORKER_AGENT_CONCURRENCY="100")
    jobs = [guests.put(task, "wait", 0.1) for task in (AGENT, INGEST) for _ in range(10)]
    with psycopg.connect(cluster.url, autocommit=True) as db:
        db.execute(
            "INSERT INTO background_jobs (kind, pool, payload) SELECT 'agent-work', 'agent', "
            """jsonb_build_object('do', CASE WHEN n %% 3 = 0 THEN 'fail once' ELSE 'progress' END, 'seconds', 0.01) """
            "FROM generate_series(1, 1000) AS n",
            [],
        )
        most, left = 0, 1
        while left:
            most = max(most, _scalar(db, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'oomph%'"))
            left = _scalar(db, "SELECT count(*) FROM background_jobs WHERE status IN ('queued', 'running')")
    guests.wait(jobs, "succeeded")
    assert worker.stop() == 0
    print(f"\nconnections of a worker under load: {most}")
    assert 4 <= most <= 6


def _scalar(db: "psycopg.Connection[tuple[object, ...]]", query: str) -> int:
    row = db.execute(query).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return int(str(row[0]))
