"""Jobs that run in the test's own process, beside whatever else there is."""

import asyncio
import os
from datetime import timedelta

import pytest

from jobs import Handler, JobContext, pause
from jobs.outcome import Failed, Succeeded
from supervisor.testing import Kit
from tests.testing.app import IMPORT, NOTE, Import, import_ledger, note

APP = "tests.testing.app:app"


def test_a_handler_runs_inline_in_the_tests_own_process(oomph_kit: Kit) -> None:
    report = oomph_kit.run_one(Handler(IMPORT, import_ledger), Import(ledger_id=7))
    assert isinstance(report.outcome, Succeeded)
    assert report.outcome.result == f'{{"pid":{os.getpid()}}}'
    assert oomph_kit.db.execute("SELECT status, attempt FROM background_jobs").fetchall() == [("succeeded", 1)]


def test_an_inline_failure_is_a_report_and_is_written(oomph_kit: Kit) -> None:
    report = oomph_kit.run_one(Handler(IMPORT, import_ledger), Import(ledger_id=-1))
    assert isinstance(report.outcome, Failed)
    assert report.outcome.error.message == "no such ledger"
    assert "During handling" not in report.outcome.error.frames  # nothing of the kit's own
    assert oomph_kit.db.execute("SELECT status FROM background_jobs").fetchall() == [("queued",)]


def test_complete_in_works_inline(oomph_kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGERS", oomph_kit.url)
    oomph_kit.db.execute("CREATE TABLE ledgers (id integer)")
    oomph_kit.run_one(Handler(NOTE, note), Import(ledger_id=3))
    assert oomph_kit.db.execute("SELECT id FROM ledgers").fetchall() == [(3,)]
    assert oomph_kit.db.execute("SELECT status FROM background_jobs").fetchall() == [("succeeded",)]


def test_a_run_after_a_failed_one_runs_its_own_job(oomph_kit: Kit) -> None:
    handler = Handler(IMPORT, import_ledger)
    assert oomph_kit.run_one(handler, Import(ledger_id=-1)).outcome.verdict == "failed"
    assert oomph_kit.run_one(handler, Import(ledger_id=1)).outcome.verdict == "succeeded"
    assert oomph_kit.db.execute("SELECT status, attempt FROM background_jobs ORDER BY id").fetchall() == [
        ("queued", 1),
        ("succeeded", 1),
    ]
    assert oomph_kit.db.execute("SELECT count(*) FROM background_workers").fetchone() == (0,)


def test_a_worker_beside_it_does_not_get_the_job(oomph_kit: Kit) -> None:
    oomph_kit.start(APP)
    for _ in range(5):
        report = oomph_kit.run_one(Handler(IMPORT, import_ledger), Import(ledger_id=1))
        assert report.outcome == Succeeded(f'{{"pid":{os.getpid()}}}')


def test_what_no_worker_might_start_is_refused_with_the_reason_and_not_left_behind(oomph_kit: Kit) -> None:
    handler = Handler(IMPORT, import_ledger)
    with pytest.raises(AssertionError, match=r"may not start: it is due in 3\d+\.\d s"):
        oomph_kit.run_one(handler, Import(ledger_id=1), run_after=timedelta(hours=1))
    pause(oomph_kit.db, "import", actor="ann", reason="bad data")
    with pytest.raises(AssertionError, match="may not start: its kind import is paused by ann: bad data"):
        oomph_kit.run_one(handler, Import(ledger_id=1))
    assert oomph_kit.db.execute("SELECT * FROM background_jobs").fetchall() == []
    assert oomph_kit.db.execute("SELECT * FROM background_workers").fetchall() == []


def test_a_busy_concurrency_key_is_named(oomph_kit: Kit) -> None:
    oomph_kit.start(APP)
    busy = oomph_kit.enqueue(IMPORT, Import(ledger_id=1, seconds=60), concurrency_key="ledger 1")
    oomph_kit.wait_for(busy, "running")
    with pytest.raises(AssertionError, match="ledger 1"):
        oomph_kit.run_one(Handler(IMPORT, import_ledger), Import(ledger_id=2), concurrency_key="ledger 1")


async def test_in_a_coroutine_a_job_runs_on_the_tests_own_loop(oomph_kit: Kit) -> None:
    loops = []

    async def notes_its_loop(payload: Import, job: JobContext) -> None:
        loops.append(asyncio.get_running_loop())

    handler = Handler(NOTE, notes_its_loop)
    with pytest.raises(RuntimeError, match=r"await oomph_kit\.run_one_async"):
        oomph_kit.run_one(handler, Import(ledger_id=1))
    assert oomph_kit.db.execute("SELECT * FROM background_jobs").fetchall() == []
    assert (await oomph_kit.run_one_async(handler, Import(ledger_id=1))).outcome.verdict == "succeeded"
    assert loops == [asyncio.get_running_loop()]


async def test_a_run_that_is_interrupted_gives_its_job_back(oomph_kit: Kit) -> None:
    began = asyncio.Event()

    async def waits(payload: Import, job: JobContext) -> None:
        began.set()
        await asyncio.sleep(60)

    running = asyncio.create_task(oomph_kit.run_one_async(Handler(NOTE, waits), Import(ledger_id=1)))
    await asyncio.wait_for(began.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert oomph_kit.db.execute("SELECT status, attempt FROM background_jobs").fetchall() == [("queued", 0)]
    assert oomph_kit.db.execute("SELECT * FROM background_workers").fetchall() == []
