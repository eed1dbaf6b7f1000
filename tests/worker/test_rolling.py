"""A deploy migrates first and replaces its workers one after the other: those of the release before work meanwhile."""

import io
import os
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from jobs import enqueue_many
from jobs.migrate import migrate
from tests.jobs.test_upgrade import LATER, install_first
from tests.worker.rolling_app import NUMBER, Number

ROOT = Path(__file__).parents[2]
# The release before, as it was; until it is tagged, the last commit that has its schema.
BEFORE = "1c1eba0f8425614fca2d35b461677f84f06d59e6"
SECONDS = 30


@pytest.fixture(scope="module")
def old_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the release before, in a folder of their own."""
    packages = ["jobs", "pools", "supervisor"]
    packed = subprocess.run(["git", "archive", BEFORE, *packages], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"the release before is not in this checkout: {packed.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def url(server: str) -> Iterator[str]:
    """A database as the release before left it."""
    name = f"rolling_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    install_first(url := make_conninfo(server, dbname=name))
    yield url
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def worker(code: Path, url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that runs this code, from its ready line to an orderly end."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("WORKER_")},
        "PYTHONPATH": os.pathsep.join([str(code), str(ROOT)]),
        "DATABASE_URL": url,
        "WORKER_APP": "tests.worker.rolling_app:app",
        "WORKER_POOLS": "agent",
        "WORKER_AGENT_CONCURRENCY": "20",
        "WORKER_RETRY_DELAY_SECONDS": "0.1",
    }
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "supervisor"], env=environment, stderr=out, cwd=code)
    try:
        wait_until(lambda: b"ready: worker" in log.read_bytes() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield process
        process.terminate()
        assert process.wait(SECONDS) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < until, "it does not come"
        time.sleep(0.02)


def test_workers_of_the_release_before_go_on_while_the_schema_is_migrated_and_beside_new_ones(
    old_code: Path, url: str, tmp_path: Path
) -> None:
    count = 500
    with psycopg.connect(url, autocommit=True) as db:

        def ran_by() -> dict[str, int]:
            """Jobs that succeeded, by the code that ran them."""
            rows = db.execute(
                "SELECT result ->> 'code', count(*) FROM background_jobs WHERE status = 'succeeded' GROUP BY 1"
            )
            return {str(Path(code).parents[1]): number for code, number in rows}

        def put(numbers: range) -> None:
            with psycopg.connect(url) as service:
                enqueue_many(service, NUMBER, [Number(number=number) for number in numbers])

        old, new = str(old_code), str(ROOT)
        # As a service of the release before does: this one's needs the schema of this one.
        db.execute(
            "INSERT INTO background_jobs (kind, pool, payload)"
            " SELECT 'number', 'agent', jsonb_build_object('number', n) FROM generate_series(0, %s::integer - 1) AS n",
            [count],
        )
        with worker(old_code, url, tmp_path / "old.log"):
            wait_until(lambda: ran_by().get(old, 0) > 10)
            assert migrate(url) == LATER
            put(range(count, 2 * count))
            wait_until(lambda: ran_by().get(old, 0) > count)
            with worker(ROOT, url, tmp_path / "new.log"):
                put(range(2 * count, 3 * count))
                wait_until(lambda: sum(ran_by().values()) == 3 * count)
        assert set(ran_by()) == {old, new}
        assert db.execute("SELECT count(*) FROM background_jobs WHERE status <> 'succeeded'").fetchone() == (0,)
        failed = sum(number % 7 == 0 for number in range(3 * count))
        assert db.execute("SELECT sum(attempt), sum(claim) FROM background_jobs").fetchone() == (
            3 * count + failed,
            3 * count + failed,
        )
        for log in ("old.log", "new.log"):
            assert " ERROR " not in (tmp_path / log).read_text()
