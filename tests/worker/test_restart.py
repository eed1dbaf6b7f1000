"""A server of its own that is stopped and started again while jobs run."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jobs.migrate import migrate
from supervisor.embedded import EmbeddedServer
from supervisor.embedded.postmaster import Postmaster
from tests.worker.app import AGENT, DEADLY, INGEST
from tests.worker.conftest import Bench


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:  # type: ignore[override]
    """Not below pytest's own folder, which is closed to the user that a server of root's runs as."""
    folder = Path(tempfile.mkdtemp(prefix="oomph-test-"))
    folder.chmod(0o755)
    server = EmbeddedServer(folder)
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.mark.parametrize("how", ["in order", "killed"])
def test_a_server_that_restarts_while_jobs_run_loses_nothing(server: EmbeddedServer, tmp_path: Path, how: str) -> None:
    """Scenario 22: what ends meanwhile is written later, what runs goes on, what waits is claimed."""
    url = server.start()
    migrate(url)
    with ExitStack() as stack:
        bench = Bench(url, tmp_path, stack)
        worker = bench.start(WORKER_LEASE_SECONDS="60", WORKER_CALL_TIMEOUT_SECONDS="2", WORKER_INGEST_CONCURRENCY="3")
        is_killed, goes_on = bench.put(DEADLY, "wait once", 60), bench.put(INGEST, "wait", 6)
        child = worker.wait_child(is_killed)
        ends_meanwhile = [bench.put(AGENT, "wait", 3), bench.put(INGEST, "wait", 3)]
        waits = [bench.put(INGEST, "print", text="later") for _ in range(3)]
        for job_id in [*ends_meanwhile, goes_on]:
            bench.wait(job_id, "running")
        if how == "killed":
            postmaster = Postmaster.of(server.data)
            assert postmaster is not None
            os.kill(postmaster.pid, signal.SIGKILL)
        server.stop()
        os.kill(child, signal.SIGKILL)
        for job_id in ends_meanwhile:
            worker.wait_log(rf"job {job_id}\b.*its outcome waits for the database")
        assert server.start() == url
        after = Bench(url, tmp_path, stack)
        for job_id in [*ends_meanwhile, goes_on, *waits]:
            after.wait(job_id, "succeeded")
            assert after.job(job_id, "attempt, claim") == (1, 1)
            assert after.attempts(job_id) == []
        after.wait(is_killed, "succeeded")
        assert after.job(is_killed, "attempt, claim") == (2, 2)
        assert after.attempts(is_killed) == [("killed",)]
        assert worker.stop() == 0
