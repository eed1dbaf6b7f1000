"""How long a worker may act on its lease: counted from the moment it asked, never from the answer."""

import asyncio
import time
from collections.abc import AsyncIterator

import psycopg
import pytest

from jobs.database import LEAST_CONNECT_SECONDS, connect_bound, connection_parameters
from jobs.store import JobStore
from supervisor.leases import ANOTHER_SECONDS, ASK_SECONDS, RETRY_SECONDS, LeaseKeeper
from supervisor.settings import HEARTBEATS_PER_LEASE, Settings
from supervisor.trust import Trust, renewal_bound
from tests.jobs.lab import Connection, Worker, hire, until, waiting_for_locks

LEASE, MARGIN = 30.0, 5.0
HELD = 0.5  # how long the database takes for a renewal


def test_an_answer_that_took_its_time_does_not_stretch_the_lease() -> None:
    trust = Trust(lease=LEASE, margin=MARGIN, registered_at=100)
    trust.renew(sent=110, now=120)
    assert trust.left(120) == 15
    assert trust.holds(134.9)
    assert not trust.holds(135)


def test_an_answer_after_the_end_of_trust_changes_nothing() -> None:
    trust = Trust(lease=LEASE, margin=MARGIN, registered_at=100)
    trust.renew(sent=124, now=126)  # sent in time, answered too late: the jobs are being stopped
    assert not trust.holds(126)
    trust.renew(sent=127, now=127)
    assert not trust.holds(127)
    assert trust.left(127) == 0


def test_an_older_answer_takes_nothing_away() -> None:
    trust = Trust(lease=LEASE, margin=MARGIN, registered_at=100)
    trust.renew(sent=110, now=111)
    trust.renew(sent=105, now=112)
    assert trust.left(112) == 23


def test_what_the_database_says_is_gone_is_gone() -> None:
    trust = Trust(lease=LEASE, margin=MARGIN, registered_at=100)
    trust.lose()
    assert not trust.holds(101)


ROOM = [(1, 6), (1, 12), (2, 12), (2, 20), (3, 20), (1, 30), (2, 30), (3, 30), (2, 60), (3, 3_600)]


@pytest.mark.parametrize(("hosts", "lease"), ROOM)
@pytest.mark.parametrize("heartbeats", [HEARTBEATS_PER_LEASE, 4, 6, 24])
def test_a_connection_that_falls_silent_just_after_a_renewal_costs_no_lease(
    hosts: int, lease: float, heartbeats: int
) -> None:
    """Where all hosts but the last are silent, a second is left for the renewal on the connection that comes about."""
    heartbeat = lease / heartbeats
    settings = Settings(
        database_url="postgresql:///", worker_app="a:b", worker_lease_seconds=lease, worker_heartbeat_seconds=heartbeat
    )
    url = "host=" + ",".join("abc"[:hosts])
    left = lease - settings.lease_margin - heartbeat  # as the renewal begins that is never answered
    another = ANOTHER_SECONDS + connect_bound(url, LEAST_CONNECT_SECONDS)
    left -= renewal_bound(left, heartbeat, another) + 2 * ASK_SECONDS + RETRY_SECONDS
    each = connection_parameters("test", min(left, connect_bound(url, heartbeat)), url)["connect_timeout"]
    assert left - (hosts - 1) * each >= 1


def test_a_renewal_has_a_heartbeats_time_where_the_lease_allows_it() -> None:
    """A server that answers slowly is not a connection that has fallen silent."""
    assert renewal_bound(left=15, heartbeat=10, another=4) == 10
    assert renewal_bound(left=12, heartbeat=10, another=4) == 8


@pytest.fixture
async def worker(store: JobStore) -> Worker:
    return await hire(store)


@pytest.fixture
async def keeper(url: str, worker: Worker) -> AsyncIterator[LeaseKeeper]:
    """Not started; registered a while ago, so that a renewal shows."""
    made = LeaseKeeper(
        url,
        worker.id,
        lease=LEASE,
        heartbeat=5,
        margin=MARGIN,
        block_warning=30,
        registered_at=time.monotonic() - 15,
        on_lost=lambda: None,
        last_resort=lambda: None,
    )
    yield made
    made.stop()


async def test_the_keeper_counts_from_the_moment_it_asked(db: Connection, url: str, keeper: LeaseKeeper) -> None:
    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM background_workers FOR UPDATE")
        keeper.start()
        await until(lambda: waiting_for_locks(db) == 1)
        asked = time.monotonic()  # at the latest
        await asyncio.sleep(HELD)
        other.commit()
    await until(lambda: keeper.seconds_left > LEASE - MARGIN - 5)
    assert time.monotonic() + keeper.seconds_left < asked + LEASE - MARGIN + HELD / 2
