"""The kit that users test their own handlers with, used as its documentation says."""

import signal
import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from jobs import pause
from supervisor.testing import Kit, is_alive, running_worker, wait_for
from tests.testing.app import IMPORT, NOTE, Import

APP = "tests.testing.app:app"


def run_pytest(folder: Path, *arguments: str) -> str:
    """What pytest says of the tests in this folder, which all pass."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", folder, folder, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_killed_child_is_tried_again(oomph_kit: Kit) -> None:
    oomph_kit.start(APP, WORKER_RETRY_DELAY_SECONDS="0")
    job_id = oomph_kit.enqueue(IMPORT, Import(ledger_id=7, seconds=60))
    pid = oomph_kit.kill_child(job_id)
    oomph_kit.wait_for(job_id, "killed")
    oomph_kit.wait_for(job_id, "succeeded")
    assert not is_alive(pid)
    assert oomph_kit.verdicts(job_id) == ["killed"]


def test_a_child_is_found_in_whichever_worker_runs_it(oomph_kit: Kit) -> None:
    workers = [oomph_kit.start(APP, WORKER_INGEST_CONCURRENCY="1") for _ in range(2)]
    jobs = [oomph_kit.enqueue(IMPORT, Import(ledger_id=number, seconds=60)) for number in range(2)]
    parents = {next(w.pid for w in workers if w.child_of(job)) for job in jobs if oomph_kit.child_of(job)}
    assert parents == {worker.pid for worker in workers}


def test_a_wait_for_what_cannot_come_fails_with_what_is(oomph_kit: Kit) -> None:
    job_id = oomph_kit.enqueue(IMPORT, Import(ledger_id=1))
    with pytest.raises(AssertionError, match=r"job \d+ succeeded.*it is queued with \[\]"):
        oomph_kit.wait_for(job_id, "succeeded", seconds=0.1)
    with pytest.raises(AssertionError, match="neither a status nor a verdict"):
        oomph_kit.wait_for(job_id, "finished")


def test_a_wait_ends_at_once_with_the_reason_when_the_job_is_over(oomph_kit: Kit) -> None:
    oomph_kit.start(APP)
    job_id = oomph_kit.enqueue(IMPORT, Import(ledger_id=-1))
    oomph_kit.db.execute("UPDATE background_jobs SET max_attempts = 1 WHERE id = %s", [job_id])
    with pytest.raises(AssertionError, match=r"it is dead with \['failed'\]; its error: ValueError: no such ledger"):
        oomph_kit.wait_for(job_id, "succeeded", seconds=15)
    with pytest.raises(AssertionError, match=r"cannot become killed any more: it is dead"):
        oomph_kit.wait_for(job_id, "killed", seconds=15)


def test_a_wait_ends_at_once_with_the_last_workers_end(oomph_kit: Kit) -> None:
    worker = oomph_kit.start(APP)
    job_id = oomph_kit.enqueue(IMPORT, Import(ledger_id=1, seconds=60))
    oomph_kit.child_of(job_id)
    worker.signal(signal.SIGKILL)
    with pytest.raises(
        AssertionError, match=r"it is running with \[\]; worker \d+ ended with signal SIGKILL[\s\S]*ready"
    ):
        oomph_kit.wait_for(job_id, "succeeded", seconds=15)
    with pytest.raises(AssertionError, match=r"can have no process: worker \d+ ended with signal SIGKILL[\s\S]*ready"):
        oomph_kit.kill_child(job_id)


def test_a_wait_goes_on_while_another_worker_can_still_take_the_job(oomph_kit: Kit, tmp_path: Path) -> None:
    dead = oomph_kit.start(APP)
    job_id = oomph_kit.enqueue(IMPORT, Import(ledger_id=1, seconds=60))
    oomph_kit.child_of(job_id)
    with running_worker(oomph_kit.url, tmp_path / "another.log", APP):
        dead.signal(signal.SIGKILL)
        oomph_kit.wait_for(job_id, "worker_lost")
        oomph_kit.wait_for(job_id, "succeeded")


def test_what_keeps_a_job_waiting_is_told(oomph_kit: Kit) -> None:
    later = oomph_kit.enqueue(IMPORT, Import(ledger_id=1), run_after=timedelta(hours=1))
    with pytest.raises(AssertionError, match=r"it is due in 3\d+\.\d s; this kit has started no worker"):
        oomph_kit.wait_for(later, "succeeded", seconds=0.1)
    pause(oomph_kit.db, "import", actor="ann", reason="bad data")
    with pytest.raises(AssertionError, match="kind import is paused by ann: bad data"):
        oomph_kit.wait_for(later, "succeeded", seconds=0.1)


def test_a_child_that_cannot_come_is_not_waited_for(oomph_kit: Kit) -> None:
    job_id = oomph_kit.enqueue(IMPORT, Import(ledger_id=1))
    with pytest.raises(AssertionError, match="can have no process: this kit has started no worker"):
        oomph_kit.kill_child(job_id)
    oomph_kit.start(APP)
    oomph_kit.wait_for(job_id, "succeeded")
    with pytest.raises(AssertionError, match="has no process any more: it is succeeded"):
        oomph_kit.kill_child(job_id)
    of_loop = oomph_kit.enqueue(NOTE, Import(ledger_id=1, seconds=60))
    with pytest.raises(AssertionError, match="has no process of its own: pool `system`"):
        oomph_kit.kill_child(of_loop)


@pytest.mark.parametrize("how", ["in order", "killed"])
def test_nothing_that_a_job_has_started_outlives_the_test(oomph_database: str, tmp_path: Path, how: str) -> None:
    told = tmp_path / "helper"
    with ExitStack() as stack:
        kit = Kit(oomph_database, tmp_path, stack)
        worker = kit.start(APP)
        job_id = kit.enqueue(IMPORT, Import(ledger_id=1, seconds=60, helper=str(told)))
        helper = int(wait_for(lambda: told.exists() and told.read_text(), "a helper") or 0)
        if how == "killed":
            worker.signal(signal.SIGKILL)
    assert not is_alive(helper)
    with psycopg.connect(oomph_database) as db:
        left = db.execute("SELECT status, attempt FROM background_jobs WHERE id = %s", [job_id]).fetchone()
    assert left == (("queued", 0) if how == "in order" else ("running", 1))


def test_sessions_that_share_a_server_have_databases_of_their_own(oomph_server: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        f"import pytest\n\n@pytest.fixture(scope='session')\ndef oomph_server():\n    return {oomph_server!r}\n"
    )
    (tmp_path / "test_mine.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.parametrize('number', range(6))\n"
        "def test_it(oomph_kit, number):\n"
        "    assert oomph_kit.db.execute('SELECT count(*) FROM background_jobs').fetchone() == (0,)\n"
    )

    def databases() -> set[str]:
        with psycopg.connect(oomph_server) as db:
            return {row[0] for row in db.execute("SELECT datname FROM pg_database")}

    before = databases()
    assert "6 passed" in run_pytest(tmp_path, "-n", "3")
    assert databases() <= before


def test_a_users_own_suite_gets_the_fixtures_without_any_configuration(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "def test_it(oomph_kit):\n"
        "    assert oomph_kit.db.execute('SELECT count(*) FROM background_jobs').fetchone() == (0,)\n"
    )
    assert "1 passed" in run_pytest(tmp_path)
