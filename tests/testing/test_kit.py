"""The kit that users test their own handlers with, used as its documentation says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import Handler
from jobs.outcome import Failed, Succeeded
from supervisor.testing import Kit, is_alive
from tests.testing.app import IMPORT, NOTE, Import, import_ledger, note

APP = "tests.testing.app:app"


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


def test_a_handler_runs_inline_in_the_tests_own_process(oomph_kit: Kit) -> None:
    report = oomph_kit.run_one(Handler(IMPORT, import_ledger), Import(ledger_id=7))
    assert isinstance(report.outcome, Succeeded)
    assert report.outcome.result == f'{{"pid":{os.getpid()}}}'
    assert oomph_kit.db.execute("SELECT status, attempt FROM background_jobs").fetchall() == [("succeeded", 1)]


def test_an_inline_failure_is_a_report_and_is_written(oomph_kit: Kit) -> None:
    report = oomph_kit.run_one(Handler(IMPORT, import_ledger), Import(ledger_id=-1))
    assert isinstance(report.outcome, Failed)
    assert report.outcome.error.message == "no such ledger"
    assert oomph_kit.db.execute("SELECT status FROM background_jobs").fetchall() == [("queued",)]


def test_complete_in_works_inline(oomph_kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGERS", oomph_kit.url)
    oomph_kit.db.execute("CREATE TABLE ledgers (id integer)")
    oomph_kit.run_one(Handler(NOTE, note), Import(ledger_id=3))
    assert oomph_kit.db.execute("SELECT id FROM ledgers").fetchall() == [(3,)]
    assert oomph_kit.db.execute("SELECT status FROM background_jobs").fetchall() == [("succeeded",)]


def test_a_wait_for_what_cannot_come_fails_with_what_is(oomph_kit: Kit) -> None:
    job_id = oomph_kit.enqueue(IMPORT, Import(ledger_id=1))
    with pytest.raises(AssertionError, match=r"job \d+ succeeded.*it is queued with \[\]"):
        oomph_kit.wait_for(job_id, "succeeded", seconds=0.1)
    with pytest.raises(AssertionError, match="neither a status nor a verdict"):
        oomph_kit.wait_for(job_id, "finished")


def test_a_users_own_suite_gets_the_fixtures_without_any_configuration(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "def test_it(oomph_kit):\n"
        "    assert oomph_kit.db.execute('SELECT count(*) FROM background_jobs').fetchone() == (0,)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", tmp_path, tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
