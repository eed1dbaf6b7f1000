"""Processes that even SIGKILL does not end. Frozen, they are as deaf as one that waits for a dead disk."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.outcome import Died, Succeeded, Verdict
from pools import ingest, life, process, spawner, template_hold
from pools.execution import Intent
from tests.pools.kitchen import is_dead, is_gone, open_descriptors, open_kitchen, text_of, until

FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def freezer() -> Iterator[Path]:
    if not os.access(FREEZER / "cgroup.procs", os.W_OK):
        pytest.skip("there is no freezer of cgroup v1 here to make a process unkillable")
    folder = FREEZER / f"oomph-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    (folder / "freezer.state").write_text("THAWED")
    deadline = time.monotonic() + 5
    while (folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    folder.rmdir()


async def test_a_child_that_cannot_be_killed_is_reported_and_keeps_its_slot_until_it_is_gone(
    freezer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario 12."""
    monkeypatch.setattr(life, "STUCK_SECONDS", 0.5)
    async with open_kitchen(budget_mb=1000) as kitchen:
        execution = kitchen.order("says_ready", str(tmp_path / "ready"), timeout=1)
        running = asyncio.create_task(kitchen.pool.run(execution))
        await until(lambda: text_of(tmp_path / "ready") != "")
        child = text_of(tmp_path / "ready").split()[0]
        (freezer / "cgroup.procs").write_text(child)
        (freezer / "freezer.state").write_text("FROZEN")
        report = await asyncio.wait_for(running, 10)
        assert isinstance(report.outcome, Died)
        assert report.outcome.verdict is Verdict.TIMED_OUT
        assert "survives SIGKILL" in report.evidence["survives"]
        assert execution.lingering is not None
        assert not execution.lingering.done()
        assert kitchen.pool.children == 1
        assert kitchen.pool._budget.held_mb > 0
        assert (await kitchen.cook("ok")).outcome == Succeeded(None)
        started = time.monotonic()
        kitchen.pool.kill_everything()
        assert time.monotonic() - started < 1
        (freezer / "freezer.state").write_text("THAWED")
        await asyncio.wait_for(execution.lingering, 5)
        assert kitchen.pool.children == 0
        assert kitchen.pool._budget.held_mb == 0
        assert all(is_gone(pid) for pid in text_of(tmp_path / "ready").split())


async def test_a_helper_that_cannot_be_killed_keeps_the_slot_and_not_the_report(
    freezer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario 12, the grandchild."""
    monkeypatch.setattr("pools.leftovers.KILL_SECONDS", 0.5)
    async with open_kitchen() as kitchen:
        execution = kitchen.order("says_ready", str(tmp_path / "ready"))
        running = asyncio.create_task(kitchen.pool.run(execution))
        await until(lambda: text_of(tmp_path / "ready") != "")
        helper = text_of(tmp_path / "ready").split()[1]
        (freezer / "cgroup.procs").write_text(helper)
        (freezer / "freezer.state").write_text("FROZEN")
        execution.stop(Intent.CANCEL)
        report = await asyncio.wait_for(running, 10)
        assert report.outcome.verdict is Verdict.CANCELLED
        assert execution.lingering is not None
        assert not execution.lingering.done()
        (freezer / "freezer.state").write_text("THAWED")
        await asyncio.wait_for(execution.lingering, 5)


async def test_a_shutdown_does_not_wait_for_what_cannot_be_killed(
    freezer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario 12, shutdown."""
    monkeypatch.setattr(life, "STUCK_SECONDS", 0.3)
    monkeypatch.setattr(ingest, "LINGER_SECONDS", 0.3)
    async with open_kitchen() as kitchen:
        execution = kitchen.order("says_ready", str(tmp_path / "ready"))
        running = asyncio.create_task(kitchen.pool.run(execution))
        await until(lambda: text_of(tmp_path / "ready") != "")
        (freezer / "cgroup.procs").write_text(text_of(tmp_path / "ready").split()[0])
        (freezer / "freezer.state").write_text("FROZEN")
        started = time.monotonic()
        await kitchen.pool.stop()
        assert time.monotonic() - started < 5
        assert (await running).outcome.verdict is Verdict.RELEASED
        (freezer / "freezer.state").write_text("THAWED")
        child = next(iter(kitchen.pool._roster.children.values()))
        await until(child.exited.is_set)
        child.tree.kill(set())
        child.reap()


async def test_a_template_that_cannot_be_killed_is_replaced_and_reaped_when_it_ends(
    freezer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Scenarios 12 and 16: while idle, with a child running; what asks it for a child is not charged."""
    monkeypatch.setattr(template_hold, "SPAWN_SECONDS", 0.2)
    monkeypatch.setattr(template_hold, "STUCK_SECONDS", 0.2)
    async with open_kitchen() as kitchen:
        running = asyncio.create_task(kitchen.cook("waits_for", f"{tmp_path / 'ready'} {tmp_path / 'done'}"))
        await until((tmp_path / "ready").exists)
        frozen = kitchen.pool._spawner.pid
        assert frozen is not None
        (freezer / "cgroup.procs").write_text(str(frozen))
        (freezer / "freezer.state").write_text("FROZEN")
        report = await asyncio.wait_for(kitchen.cook("ok"), 10)
        assert report.outcome.verdict is Verdict.SPAWN_FAILED
        assert not kitchen.pool.can_start or kitchen.pool._spawner.pid != frozen
        assert (await asyncio.wait_for(kitchen.cook("ok"), 10)).outcome == Succeeded(None)
        assert kitchen.pool._spawner.pid != frozen
        assert f"the template (pid {frozen}) survives SIGKILL" in caplog.text
        (tmp_path / "done").touch()
        assert (await asyncio.wait_for(running, 10)).outcome == Succeeded(None)
        (freezer / "freezer.state").write_text("THAWED")
        await until(lambda: is_gone(frozen))
        assert kitchen.pool.template_up
        assert (await kitchen.cook("ok")).outcome == Succeeded(None)


async def test_an_idle_template_that_cannot_be_killed_is_found_and_replaced(
    freezer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenarios 12 and 16, idle; and again and again, up to a bound."""
    for name in ("SPAWN_SECONDS", "STUCK_SECONDS"):
        monkeypatch.setattr(template_hold, name, 0.3)
    monkeypatch.setattr(spawner, "PING_SECONDS", 0.1)
    monkeypatch.setattr(spawner, "MAX_BACKOFF_SECONDS", 0.1)
    async with open_kitchen() as kitchen:
        frozen: list[int] = []
        while len(frozen) < spawner.MAX_STUCK:
            await until(lambda: kitchen.pool._spawner.pid not in (None, *frozen) and kitchen.pool.template_up)
            frozen.append(kitchen.pool._spawner.pid or 0)
            (freezer / "cgroup.procs").write_text(str(frozen[-1]))
            (freezer / "freezer.state").write_text("FROZEN")
        await until(lambda: not kitchen.pool.template_up)
        (freezer / "freezer.state").write_text("THAWED")
        await until(lambda: kitchen.pool.template_up and kitchen.pool._spawner.pid not in frozen)
        assert all(is_gone(pid) for pid in frozen)


async def test_a_shutdown_does_not_wait_for_a_template_that_cannot_be_killed(
    freezer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario 12, shutdown: also while its end is already waited for."""
    monkeypatch.setattr(template_hold, "STUCK_SECONDS", 0.3)
    before = open_descriptors()
    async with open_kitchen() as kitchen:
        frozen = kitchen.pool._spawner.pid
        assert frozen is not None
        (freezer / "cgroup.procs").write_text(str(frozen))
        (freezer / "freezer.state").write_text("FROZEN")
        await asyncio.wait_for(kitchen.pool.stop(), 5)
        assert open_descriptors() == before
        (freezer / "freezer.state").write_text("THAWED")
        await until(lambda: is_dead(frozen))
        process.reap(frozen)
