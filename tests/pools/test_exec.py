"""The start method `exec`: a fresh interpreter per child, for code that a fork would break."""

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from jobs.outcome import Cancelled, Died, Failed, Succeeded, Verdict
from pools.execution import Intent
from pools.ingest import IngestPool
from pools.options import IngestOptions, StartMethod
from pools.template_hold import TemplateError
from tests.pools.handlers_app import app
from tests.pools.kitchen import Kitchen, is_gone, job_processes, open_kitchen, result_of, text_of, until

EXEC = {"start_method": StartMethod.EXEC}


async def test_verdicts_limits_and_clean_up_are_those_of_a_forked_child(tmp_path: Path) -> None:
    async with open_kitchen(**EXEC) as kitchen:
        assert result_of(await kitchen.cook("result", "é")) == "é"
        for recipe, text, verdict in (
            ("segfault", "", Verdict.CRASHED),
            ("signal_itself", "SIGKILL", Verdict.KILLED),
            ("eat_bytes", "", Verdict.MEMORY_EXCEEDED),
        ):
            report = await kitchen.cook(recipe, text)
            assert report.outcome.verdict is verdict, report
        assert 90 < (report.process.peak_memory_mb or 0) < 115
        assert is_gone(result_of(await kitchen.cook("daemon", "exec with nothing")))
        report, pids = await kitchen.cook_until(Intent.CANCEL, "says_ready", tmp_path / "ready")
        assert report.outcome == Cancelled()
        assert all(is_gone(pid) for pid in pids.split())
        report = await kitchen.cook("sleeps", seconds=0.3)
        assert isinstance(report.outcome, Died)
        assert "in sleeps" in report.outcome.error.frames
        assert kitchen.pool.share_mb > 5


async def test_an_app_that_starts_a_thread_when_it_is_imported_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario 17, the other way out: what the template refuses, `exec` allows."""
    (tmp_path / "threaded_app.py").write_text(
        "import threading, time, os\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "from tests.pools.handlers_app import app\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pool = IngestPool("threaded_app:app", app, memory_mb=100, slots=1)
    with pytest.raises(TemplateError, match="thread"):
        await pool.start()
    await pool.stop()
    async with open_kitchen(spec="threaded_app:app", **EXEC) as kitchen:
        facts = result_of(await kitchen.cook("surroundings"))
        assert "'threads': 2" in facts


async def test_an_app_that_does_not_load_in_a_child_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_app.py").write_text("x = 1\nraise ValueError('not today')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pool = IngestPool("broken_app:app", app, memory_mb=100, slots=1, options=IngestOptions(**EXEC))
    with pytest.raises(TemplateError) as refused:
        await pool.start()
    for words in ("first child", "ValueError", "broken_app.py:2", "not today"):
        assert words in str(refused.value)
    await pool.stop()
    assert job_processes() == []


async def test_a_job_stopped_while_its_child_loads_the_app_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_app.py").write_text(
        f"import time, os\nif os.path.exists({str(tmp_path / 'slow')!r}): time.sleep(600)\n"
        "from tests.pools.handlers_app import app\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    async with open_kitchen(spec="slow_app:app", **EXEC) as kitchen:
        (tmp_path / "slow").touch()
        execution = kitchen.order("says_ready", str(tmp_path / "ready"))
        running = asyncio.create_task(kitchen.pool.run(execution))
        await until(lambda: kitchen.pool.children == 1)
        execution.stop(Intent.SHUTDOWN)
        started = time.monotonic()
        report = await running
        assert time.monotonic() - started < 2
        assert report.outcome.verdict is Verdict.RELEASED
        assert text_of(tmp_path / "ready") == ""


async def test_the_app_is_loaded_inside_the_enclosure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "curious_app.py").write_text(
        "import os, json, pathlib\n"
        "from tests.pools.handlers_app import app\n"
        f"pathlib.Path({str(tmp_path / 'seen')!r}).write_text(json.dumps([os.environ.get('TMPDIR'), os.getcwd()]))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    async with open_kitchen(spec="curious_app:app", **EXEC) as kitchen:
        scratch = result_of(await kitchen.cook("surroundings_of_a_program"))
        tmpdir, folder = json.loads(text_of(tmp_path / "seen"))
        assert "/oomph-" in tmpdir
        assert tmpdir in scratch
        assert folder == str(tmp_path)
        assert isinstance(kitchen, Kitchen)


async def test_a_template_that_dies_takes_no_executed_child_along(tmp_path: Path) -> None:
    async with open_kitchen(**EXEC) as kitchen:
        ready, done = tmp_path / "ready", tmp_path / "done"
        running = asyncio.create_task(kitchen.cook("waits_for", f"{ready} {done}"))
        await until(ready.exists)
        assert kitchen.pool._spawner.pid is not None
        os.kill(kitchen.pool._spawner.pid, 9)
        await until(lambda: not kitchen.pool.template_up)
        done.touch()
        assert (await running).outcome == Succeeded(None)
        assert not isinstance((await kitchen.cook("ok")).outcome, Failed)
