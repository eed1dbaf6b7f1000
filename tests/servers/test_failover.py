"""A primary with a streaming standby that takes its place, and servers that take no writes for a while."""

import signal
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from jobs.database import (
    LEAST_CONNECT_SECONDS,
    MAX_CONNECTIONS,
    Database,
    connect_bound,
    connection_parameters,
)
from jobs.unavailable import DatabaseUnavailable
from supervisor.settings import HEARTBEATS_PER_LEASE
from supervisor.testing.waiting import wait_for
from tests.proxy import Proxy
from tests.servers.cluster import Cluster, new_standby
from tests.servers.guests import Guests, said_too_often
from tests.worker.app import AGENT

pytestmark = pytest.mark.whole

LEASE_SECONDS = 24
REFUSED = "cannot execute .* in a read-only transaction"


@pytest.fixture
def standby(cluster: Cluster) -> Iterator[Cluster]:
    """A standby without which the primary commits nothing."""
    with new_standby(cluster) as started:
        wait_for(lambda: "streaming" in _states(cluster), "a standby that streams")
        cluster.execute("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        yield started


def _states(cluster: Cluster) -> set[str]:
    with psycopg.connect(cluster.url) as db:
        return {str(row[0]) for row in db.execute("SELECT state FROM pg_stat_replication")}


def both(first: Cluster, second: Cluster, **more: str) -> str:
    """A URL that names two servers."""
    return make_conninfo(first.url, host=f"{first.folder},{second.folder}", **more)


@pytest.mark.parametrize("attributes", [{"target_session_attrs": "read-write"}, {}], ids=["named", "by default"])
def test_a_standby_that_is_promoted_is_found(
    cluster: Cluster, guests: Guests, standby: Cluster, attributes: dict[str, str]
) -> None:
    """Until then it is read-only: the worker waits and says so, and nothing that was committed is lost or charged."""
    worker = guests.start(both(standby, cluster, **attributes))
    done, running = guests.put_everywhere(), guests.put_everywhere("wait", 6)
    guests.wait(done, "succeeded")
    guests.wait(running, "running")
    cluster.stop(signal.SIGQUIT)
    worker.wait_log("WARNING .*session is read-only|WARNING .*is in hot standby mode")
    worker.wait_log("lost its lease")
    guests.url = standby.url
    standby.execute("SELECT pg_promote()")
    worker.wait_log("the worker goes on as")
    guests.wait([*running, *guests.put_everywhere()], "succeeded", 60)
    assert guests.claims(done) == {1}
    assert guests.charged([*done, *running]) == {1}
    assert said_too_often(worker) == {}
    assert worker.stop() == 0


def test_a_server_that_takes_no_writes_is_waited_for(cluster: Cluster, guests: Guests) -> None:
    worker = guests.start()
    running = guests.put_everywhere("wait", 6)
    guests.wait(running, "running")
    cluster.execute("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
    worker.wait_log(f"WARNING .*{REFUSED}")
    worker.wait_log("lost its lease")
    cluster.execute("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")
    worker.wait_log("the worker goes on as")
    guests.wait([*running, *guests.put_everywhere()], "succeeded", 60)
    assert guests.charged(running) == {1}
    assert said_too_often(worker) == {}
    assert worker.stop() == 0


async def test_a_connection_to_a_server_that_lost_its_role_is_not_kept(cluster: Cluster, standby: Cluster) -> None:
    """It would live on for as long as that server does, although another one takes the writes."""
    database = Database(both(cluster, standby), call_timeout=5, application_name="test")
    await database.open()
    try:
        await database.fetch("notify", channel="a", payload="")
        cluster.execute("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
        standby.execute("SELECT pg_promote()")
        for _ in range(MAX_CONNECTIONS):  # each is let go of by the call that finds out
            with suppress(DatabaseUnavailable):
                await database.fetch("forget_workers")
        await database.fetch("forget_workers")
    finally:
        await database.close()


async def test_a_silent_host_does_not_keep_the_next_from_its_turn(cluster: Cluster) -> None:
    """A host that lost its power answers nothing at all, and each try waits for it first."""
    with Proxy(cluster.url) as silent:
        silent.freeze()
        host = str(silent.url.split("host=")[1].split()[0])
        url = make_conninfo(cluster.url, host=f"{host},{cluster.folder}", port="5432,5432")
        assert connection_parameters("test", 5, url)["connect_timeout"] == LEAST_CONNECT_SECONDS
        assert connect_bound(url, 0.5) > 2 * LEAST_CONNECT_SECONDS
        database = Database(url, call_timeout=6, application_name="test")
        assert await database.claims.fetch("backend_pid")
        await database.claims.close()


@pytest.mark.parametrize("heartbeat", [0.5, LEASE_SECONDS / HEARTBEATS_PER_LEASE], ids=["often", "seldom"])
def test_a_lease_outlives_a_host_that_falls_silent(cluster: Cluster, guests: Guests, heartbeat: float) -> None:
    """New connections ask it first, too. Seconds of trust are left then, for a machine that has much to do."""
    with Proxy(cluster.url) as dying:
        host = str(dying.url.split("host=")[1].split()[0])
        url = make_conninfo(cluster.url, host=f"{host},{cluster.folder}", port="5432,5432")
        worker = guests.start(
            url,
            WORKER_LEASE_SECONDS=f"{LEASE_SECONDS}",
            WORKER_HEARTBEAT_SECONDS=f"{heartbeat}",
            WORKER_CALL_TIMEOUT_SECONDS="5",
        )
        job_id = guests.put(AGENT, "wait", LEASE_SECONDS)
        guests.wait([job_id], "running")
        dying.freeze()
        worker.wait_log("the lease could not be renewed")
        worker.wait_log("the lease is renewed again")
        guests.wait([job_id, *guests.put_everywhere()], "succeeded", 60)
        assert "lost its lease" not in worker.text()
        assert guests.claims([job_id]) == {1}
        assert worker.stop() == 0
