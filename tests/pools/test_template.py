"""The template: what it refuses, how it is replaced, what it costs a job when it fails."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jobs.outcome import Returned, Succeeded, Verdict
from pools import spawner, template_hold
from pools.execution import Intent
from pools.ingest import IngestPool
from pools.options import StartMethod
from pools.spawner import HEALTHY_BIRTHS, backoff_seconds
from pools.template_hold import Template, TemplateError
from supervisor.testing.waiting import wait_for
from tests.pools.handlers_app import app
from tests.pools.kitchen import SPEC, Kitchen, is_dead, job_processes, open_descriptors, open_kitchen, text_of, until

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def kitchen() -> AsyncIterator[Kitchen]:
    """A pool of its own: here it is broken on purpose."""
    before = open_descriptors()
    pool = IngestPool(SPEC, app, memory_mb=100, slots=10)
    await pool.start()
    yield Kitchen(pool)
    await pool.stop()
    assert job_processes() == []
    assert open_descriptors() == before


def _template(kitchen: Kitchen) -> int:
    assert kitchen.pool._spawner.pid is not None
    return kitchen.pool._spawner.pid


async def test_a_refusal_is_heard_even_where_the_template_was_dead_before_anyone_listened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a host that is busy the loop wakes to its last words and its end at once."""
    (tmp_path / "bad_preload.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=[9]).start()\n"
    )
    (tmp_path / "bad_app.py").write_text("from jobs import App\napp = App([], preload=['bad_preload'])\n")
    monkeypatch.chdir(tmp_path)
    template = Template.launch("bad_app:app", StartMethod.FORK, os.environ, 1 << 40, lambda: None)
    stat = Path(f"/proc/{template.pid}/stat")
    wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "its end")  # the loop stands still
    with pytest.raises(TemplateError, match="thread") as refused:
        await template.ready()
    assert "ended before it was ready" not in str(refused.value)
    await template.end(5, "the test is over")


async def test_threads_that_end_while_a_module_is_loaded_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some libraries look at their host in threads; for the kernel one lives a little longer than its join says."""
    (tmp_path / "passing_preload.py").write_text(
        "import threading, time\n"
        "for seconds in (0, 0, 0, 0.2): threading.Thread(target=time.sleep, args=[seconds]).start()\n"
    )
    (tmp_path / "passing_app.py").write_text("from jobs import App\napp = App([], preload=['passing_preload'])\n")
    monkeypatch.chdir(tmp_path)
    template = Template.launch("passing_app:app", StartMethod.FORK, os.environ, 1 << 40, lambda: None)
    await template.ready()
    await template.end(5, "the test is over")


async def test_running_children_do_not_notice_that_the_template_died(kitchen: Kitchen, tmp_path: Path) -> None:
    """Scenario 15: SIGKILL with eight children running; also once more, at once."""
    ready, done = [tmp_path / f"ready{number}" for number in range(8)], tmp_path / "done"
    running = [asyncio.create_task(kitchen.cook("waits_for", f"{path} {done}")) for path in ready]
    await until(lambda: all(path.exists() for path in ready))
    for _ in range(2):
        old = _template(kitchen)
        os.kill(old, signal.SIGKILL)
        await until(lambda: not kitchen.pool.template_up)
        assert (await kitchen.cook("ok")).outcome == Succeeded(None)
        assert _template(kitchen) != old
    done.touch()
    assert [report.outcome for report in await asyncio.gather(*running)] == [Succeeded(None)] * 8


async def test_a_template_that_is_stopped_while_nobody_needs_it_is_replaced(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenarios 15 and 16, idle: it is found by a ping, so that no job has to find it."""
    monkeypatch.setattr(spawner, "PING_SECONDS", 0.1)
    monkeypatch.setattr(template_hold, "SPAWN_SECONDS", 0.3)
    first = _template(kitchen)
    os.kill(first, signal.SIGKILL)  # the keeper takes the new times up with the next template
    await until(lambda: kitchen.pool._spawner.pid not in (None, first) and kitchen.pool.template_up)
    stopped = _template(kitchen)
    os.kill(stopped, signal.SIGSTOP)
    await until(lambda: kitchen.pool._spawner.pid not in (None, stopped) and kitchen.pool.template_up)
    assert (await kitchen.cook("ok")).outcome == Succeeded(None)


async def test_a_healthy_template_is_left_alone_by_its_pings(kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawner, "PING_SECONDS", 0.01)
    os.kill(_template(kitchen), signal.SIGKILL)
    await until(lambda: not kitchen.pool.template_up)
    await until(lambda: kitchen.pool.template_up)
    template = _template(kitchen)
    for _ in range(20):
        assert (await kitchen.cook("ok")).outcome == Succeeded(None)
    assert _template(kitchen) == template


async def test_a_template_killed_while_it_should_spawn_costs_the_job_nothing(kitchen: Kitchen) -> None:
    """Scenario 15, mid-spawn."""
    os.kill(_template(kitchen), signal.SIGSTOP)
    running = asyncio.create_task(kitchen.cook("ok"))
    await until(lambda: kitchen.pool._spawner.is_busy)
    os.kill(_template(kitchen), signal.SIGKILL)
    report = await running
    assert isinstance(report.outcome, Returned)
    assert report.outcome.verdict is Verdict.SPAWN_FAILED
    assert report.outcome.delay.total_seconds() > 0
    assert (await kitchen.cook("ok")).outcome == Succeeded(None)


async def test_a_template_that_does_not_answer_is_replaced(kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenario 16."""
    monkeypatch.setattr(template_hold, "SPAWN_SECONDS", 0.2)
    stuck = _template(kitchen)
    os.kill(stuck, signal.SIGSTOP)
    report = await kitchen.cook("ok")
    assert isinstance(report.outcome, Returned)
    assert report.outcome.verdict is Verdict.SPAWN_FAILED
    assert "did not answer" in report.outcome.why
    await until(lambda: kitchen.pool._spawner.pid not in (None, stuck))
    assert (await kitchen.cook("ok")).outcome == Succeeded(None)


async def test_a_job_cancelled_while_it_is_born_leaves_nothing(kitchen: Kitchen) -> None:
    os.kill(_template(kitchen), signal.SIGSTOP)
    running = asyncio.create_task(kitchen.cook("ok"))
    await until(lambda: kitchen.pool._spawner.is_busy)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    os.kill(_template(kitchen), signal.SIGCONT)
    assert (await kitchen.cook("ok")).outcome == Succeeded(None)
    await until(lambda: job_processes(template=kitchen.pool._spawner.pid) == [])


async def test_stop_releases_what_runs(tmp_path: Path) -> None:
    pool = IngestPool(SPEC, app, memory_mb=100, slots=4)
    await pool.start()
    kitchen, ready = Kitchen(pool), tmp_path / "ready"
    running = asyncio.create_task(pool.run(kitchen.order("says_ready", str(ready))))
    await until(lambda: text_of(ready) != "")
    await pool.stop()
    assert (await running).outcome.verdict is Verdict.RELEASED
    assert job_processes() == []


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (
            "from threading import Thread as T, Event\nT(target=Event().wait, daemon=True, name='poller').start()",
            ["thread", "poller", "bad_preload.py:2", "preloading bad_preload"],
        ),
        (
            "from threading import Thread as T, Event\nT(target=Event().wait, name='no daemon').start()",
            ["thread", "no daemon", "preloading bad_preload"],
        ),
        ("import socket\ns = socket.socket()", ["socket", "AF_INET", "preloading bad_preload"]),
        ("import socket\na, b = socket.socketpair()", ["socket", "AF_UNIX", "preloading bad_preload"]),
        (
            "import socket\ns = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
            ["socket", "AF_NETLINK", "preloading bad_preload"],
        ),
        ("import asyncio\nloop = asyncio.new_event_loop()", ["event loop", "preloading bad_preload"]),
        ("x = 1\nraise ValueError('not today')", ["ValueError", "bad_preload.py:2", "not today"]),
        ("import sys; sys.exit(5)", ["SystemExit", "bad_preload.py:1"]),
        ("raise KeyboardInterrupt", ["KeyboardInterrupt", "preloading bad_preload", "bad_preload.py:1"]),
        ("class Own(BaseException): ...\nraise Own('x')", ["Own", "preloading bad_preload", "bad_preload.py:2"]),
        (
            "class Odd(Exception):\n def __str__(self): raise SystemExit(9)\nraise Odd",
            ["SystemExit", "preloading bad_preload"],
        ),
        ("import os; os._exit(5)", ["ended before it was ready", "exit status 5", "preloading bad_preload"]),
        ("import ctypes; ctypes.string_at(0)", ["SIGSEGV", "preloading bad_preload"]),
        ("import os; os.closerange(3, 100)\nraise ValueError", ["exit status 1", "preloading bad_preload"]),
        (
            "import os, time; os.closerange(3, 100)\ntime.sleep(600)",
            ["closed its control socket", "preloading bad_preload"],
        ),
        (
            "import os, time\nif os.fork() == 0: time.sleep(600); os._exit(0)",
            ["process running", "preloading bad_preload"],
        ),
        ("import subprocess\np = subprocess.Popen(['sleep', '600'])", ["sleep 600", "preloading bad_preload"]),
        (
            "import os\nos.register_at_fork(after_in_child=lambda: os._exit(3))",
            ["every fork", "exit status 3", "preloading bad_preload"],
        ),
    ],
)
async def test_what_cannot_be_forked_safely_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, words: list[str]
) -> None:
    """Scenario 17."""
    (tmp_path / "bad_preload.py").write_text(module + "\n")
    (tmp_path / "bad_app.py").write_text("from jobs import App\napp = App([], preload=['bad_preload'])\n")
    monkeypatch.chdir(tmp_path)
    before = open_descriptors()
    monkeypatch.setattr(template_hold, "LEAVE_SECONDS", 0.5)
    pool = IngestPool("bad_app:app", app, memory_mb=100, slots=1)
    with pytest.raises(TemplateError) as refused:
        await asyncio.wait_for(pool.start(), 20)
    for word in words:
        assert word in str(refused.value)
    await pool.stop()
    assert job_processes() == []
    assert open_descriptors() == before


@pytest.mark.parametrize(
    "module",
    [
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        # A daemon with two forks is nobody's child by the time anyone looks; it ends with the worker.
        "import os, time\nif os.fork() == 0:\n if os.fork() == 0: time.sleep(600)\n os._exit(0)\nos.wait()",
    ],
)
async def test_what_a_preload_changes_about_children_ends_no_job_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    (tmp_path / "odd_preload.py").write_text(module + "\n")
    lines = "from jobs import App\nfrom tests.pools.handlers_app import app as cook\n"
    (tmp_path / "odd_app.py").write_text(f"{lines}app = App(cook.handlers.values(), preload=['odd_preload'])\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    async with open_kitchen(spec="odd_app:app") as kitchen:
        assert (await kitchen.cook("ok")).outcome == Succeeded(None)


async def test_a_file_of_the_user_cannot_shadow_our_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs.py").write_text("raise RuntimeError('the wrong jobs')\n")
    (tmp_path / "mine.py").write_text("from jobs import App\napp = App([])\n")
    monkeypatch.chdir(tmp_path)
    pool = IngestPool("mine:app", app, memory_mb=100, slots=1)
    await pool.start()
    await pool.stop()


def test_the_first_restart_is_free_and_then_they_slow_down() -> None:
    assert [backoff_seconds(n) for n in range(1, 6)] == [0, 1, 2, 4, 8]
    assert backoff_seconds(1000) == 60


async def test_a_template_that_has_served_well_is_replaced_at_once_however_often_it_is_killed(kitchen: Kitchen) -> None:
    for _ in range(5):
        killed = _template(kitchen)
        for _ in range(HEALTHY_BIRTHS):
            assert (await kitchen.cook("ok")).outcome == Succeeded(None)
        os.kill(killed, signal.SIGKILL)
        await until(lambda killed=killed: kitchen.pool._spawner.pid not in (None, killed) and kitchen.pool.template_up)


async def test_when_the_supervisor_is_killed_template_and_children_die(tmp_path: Path) -> None:
    """Scenario 18, idle and running."""
    ready = tmp_path / "ready"
    script = textwrap.dedent(f"""
        import asyncio
        from pools.ingest import IngestPool
        from tests.pools.handlers_app import app
        from tests.pools.kitchen import SPEC, Kitchen

        async def main():
            pool = IngestPool(SPEC, app, memory_mb=100, slots=1)
            await pool.start()
            print(pool._spawner.pid, flush=True)
            await pool.run(Kitchen(pool).order("says_ready", {str(ready)!r}))

        asyncio.run(main())
    """)
    supervisor = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    assert supervisor.stdout is not None
    template = int(supervisor.stdout.readline())
    await until(lambda: text_of(ready) != "")
    child = int(text_of(ready).split()[0])
    killed = time.monotonic()
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()

    await until(lambda: is_dead(template) and is_dead(child), 1)
    assert time.monotonic() - killed < 1
    os.kill(int(text_of(ready).split()[1]), signal.SIGKILL)  # its helper: see the limits of parent-death signals


async def test_an_intent_of_shutdown_does_not_wait_for_a_template(kitchen: Kitchen) -> None:
    execution = kitchen.order("ok")
    execution.stop(Intent.SHUTDOWN)
    report = await kitchen.pool.run(execution)
    assert report.outcome.verdict is Verdict.RELEASED
    assert json.dumps(dict(report.evidence))
