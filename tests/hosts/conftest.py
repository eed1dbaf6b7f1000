import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from jobs.enqueue import enqueue
from jobs.migrate import migrate
from jobs.task import Task
from supervisor.testing.processes import WorkerProcess
from supervisor.testing.waiting import wait_for
from tests.hosts.app import JOURNAL, Line, Stay, read_journal
from tests.hosts.network import EVERYBODY, Host, Network, new_network
from tests.servers.cluster import Cluster, new_cluster

HOSTS = ("small", "big", "third", "fourth")
Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True)
class Ground:
    """A network of hosts, one of which has the database server."""

    network: Network
    database: Host
    cluster: Cluster
    hosts: dict[str, Host]


@pytest.fixture(scope="session")
def ground() -> Iterator[Ground]:
    with new_network() as network:
        database = network.add("database")
        hosts = {name: network.add(name) for name in HOSTS}
        settings = {"listen_addresses": database.address}
        through = ["nsenter", f"--net=/run/netns/{database.namespace}"]
        with new_cluster(settings=settings, through=through, guests=EVERYBODY) as cluster:
            cluster.execute("CREATE DATABASE migrated")
            migrate(make_conninfo(cluster.url, dbname="migrated"))
            yield Ground(network, database, cluster, hosts)


class Site:
    """The ground with a database and a journal of one test's own."""

    def __init__(self, ground: Ground, name: str, db: Connection, folder: Path, stack: ExitStack) -> None:
        self.hosts = ground.hosts
        self.database = ground.database
        self.db = db
        self._name = name
        self._journal = folder / "journal"
        self._folder = folder
        self._stack = stack
        self._workers = 0

    def launch(self, host: str, app: str = "v1", **settings: str) -> WorkerProcess:
        """A worker that has just been started on a host; ended with the test."""
        self._workers += 1
        worker = WorkerProcess(
            f"postgresql://postgres@{self.database.address}/{self._name}",
            f"tests.hosts.app:{app}",
            self._folder / f"{host}-{self._workers}.log",
            {JOURNAL: str(self._journal), "WORKER_CALL_TIMEOUT_SECONDS": "2", **settings},
            through=self.hosts[host].enter,
        )
        self._stack.callback(worker.end)
        return worker

    def start(self, host: str, app: str = "v1", **settings: str) -> WorkerProcess:
        """A worker that is ready."""
        return self.launch(host, app, **settings).wait_ready()

    def put(self, task: Task[Stay], seconds: float = 0.0, number: int = 1, **more: Any) -> list[int]:
        jobs = [enqueue(self.db, task, Stay(seconds=seconds), **more) for _ in range(number)]
        return [job_id for job_id in jobs if isinstance(job_id, int)]

    def rows(self, jobs: list[int], columns: str) -> list[tuple[Any, ...]]:
        query = f"SELECT {columns} FROM background_jobs WHERE id = ANY (%s) ORDER BY id"
        return self.db.execute(query, [jobs]).fetchall()  # type: ignore[arg-type]

    def wait(self, jobs: list[int], status: str, seconds: float = 30.0) -> None:
        """Wait until all of them have this status."""
        wait_for(lambda: {row[0] for row in self.rows(jobs, "status")} == {status}, f"{jobs} {status}", seconds)

    def journal(self, jobs: list[int]) -> list[Line]:
        """What the handlers of these jobs have written so far."""
        return [line for line in read_journal(self._journal) if line.job in jobs]

    def ran_on(self, jobs: list[int]) -> set[str]:
        return {line.host for line in self.journal(jobs)}


@pytest.fixture
def site(ground: Ground, tmp_path: Path) -> Iterator[Site]:
    name = f"oomph_{uuid.uuid4().hex}"
    with psycopg.connect(ground.cluster.url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE migrated").format(sql.Identifier(name)))
    with (
        psycopg.connect(make_conninfo(ground.cluster.url, dbname=name), autocommit=True) as db,
        ExitStack() as stack,
    ):
        yield Site(ground, name, db, tmp_path, stack)
        for host in [ground.database, *ground.hosts.values()]:
            host.heal()
