"""The server's disk is full: its tables', or its log's, which ends the server itself."""

from contextlib import ExitStack, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from jobs.migrate import migrate
from supervisor.testing.waiting import wait_for
from tests.servers.cluster import Cluster, new_cluster
from tests.servers.disk import Disk, new_disk
from tests.servers.guests import Guests, said_too_often
from tests.worker.app import AGENT

pytestmark = pytest.mark.whole

FULL = "No space left on device"
MANY = (
    "INSERT INTO background_jobs (kind, pool, run_after, payload) "
    "SELECT 'agent-work', 'agent', now() + interval '1 s', "
    "jsonb_build_object('do', 'nothing', 'text', repeat(md5(n::text), 20)) FROM generate_series(1, 3000) AS n"
)
LEFT = "SELECT count(*) FROM background_jobs WHERE kind = 'agent-work' AND status IN ('queued', 'running')"
ENDS = "SELECT DISTINCT status, attempt FROM background_jobs WHERE kind = 'agent-work'"
CHARGES = "SELECT DISTINCT verdict FROM background_attempts WHERE charged"


def test_tables_on_a_full_disk_are_waited_for(tmp_path: Path) -> None:
    with new_disk(64) as disk, new_cluster() as cluster, ExitStack() as stack:
        cluster.execute(f"CREATE TABLESPACE small LOCATION '{disk.folder}'", "CREATE DATABASE jobs TABLESPACE small")
        guests = _guests(make_conninfo(cluster.url, dbname="jobs"), tmp_path, stack)
        worker = guests.start(WORKER_LEASE_SECONDS="6")
        guests.look(MANY)
        disk.fill()
        worker.wait_log(f"WARNING .*{FULL}")
        disk.empty()
        _all_is_well(guests)
        assert said_too_often(worker) == {}
        assert worker.stop() == 0


def test_a_server_that_ends_for_want_of_space_is_waited_for(tmp_path: Path) -> None:
    """It cannot write its log any more; somebody makes space and starts it again."""
    with (
        new_disk(16) as disk,
        new_cluster(
            initdb=["--waldir", disk.folder / "wal", "--wal-segsize=1"],
            settings={"min_wal_size": "2MB", "max_wal_size": "4MB"},
        ) as cluster,
        ExitStack() as stack,
    ):
        guests = _guests(cluster.url, tmp_path, stack)
        worker = guests.start(WORKER_LEASE_SECONDS="6")
        guests.look(MANY)
        guests.wait([guests.put(AGENT, "wait", 15)], "running")
        _end_for_want_of_space(cluster, disk)
        worker.wait_log("WARNING .*could not be renewed")
        disk.empty()
        wait_for(lambda: _is_back(cluster), "the server's recovery")
        _all_is_well(guests)
        assert said_too_often(worker) == {}
        assert worker.stop() == 0


def _guests(url: str, logs: Path, stack: ExitStack) -> Guests:
    migrate(url)
    return Guests(url, logs, stack)


def _end_for_want_of_space(cluster: Cluster, disk: Disk) -> None:
    disk.fill()
    with suppress(psycopg.OperationalError):  # somebody loads more than the log has room for
        cluster.execute("CREATE TABLE load AS SELECT n, md5(n::text) FROM generate_series(1, 1000000) AS n")
    wait_for(lambda: "PANIC" in cluster.log, "a server that cannot write its log")
    assert FULL in cluster.log


def _is_back(cluster: Cluster) -> bool:
    """By itself, where it still tries; else somebody starts it."""
    if cluster.has_ended:
        cluster.start()
    return cluster.answers()


def _all_is_well(guests: Guests) -> None:
    """No job is lost, and none was charged for what was none of its fault."""
    wait_for(lambda: guests.look(LEFT) == [(0,)], "all jobs have run", 60)
    assert guests.look(CHARGES) == []
    assert guests.look(ENDS) == [("succeeded", 1)]
