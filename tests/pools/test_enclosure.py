"""What a job may use, reach and become: limits, user, scratch folder, Landlock."""

# ruff: noqa: ASYNC240

import ast
import asyncio
import os
import pwd
import sys
from pathlib import Path

import pytest

from jobs.outcome import Died, Failed, Succeeded, Verdict
from pools import landlock, seccomp, shm, watch
from pools.options import StartMethod
from pools.process import NotSupported
from pools.startup import check_reach
from pools.user import closed_to, resolve_user
from tests.pools.kitchen import is_dead, job_processes, let_others_pass, open_kitchen, result_of, until

NOBODY = pwd.getpwnam("nobody")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as another user")
with_landlock = pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock")
with_scopes = pytest.mark.skipif(not landlock.scopes_signals(), reason="this kernel's Landlock scopes no signals")


async def test_a_job_starts_in_a_private_folder_that_is_gone_after_its_verdict(tmp_path: Path) -> None:
    async with open_kitchen(scratch_path=str(tmp_path), scratch_mb=7, open_files=99) as kitchen:
        facts = ast.literal_eval(result_of(await kitchen.cook("surroundings_of_a_program")))
        scratch = facts["cwd"]
        assert scratch.startswith(f"{tmp_path}/oomph-")
        assert facts["tempdir"] == scratch
        assert facts["tmp"] == [scratch] * 3
        assert facts["mode"] == "0o700"
        assert facts["new_privileges"]
        limits = facts["limits"]
        assert (limits["NOFILE"], limits["FSIZE"], limits["CORE"]) == (99, 7 << 20, 0)
        assert 0 < limits["CPU"] < 10_000
        assert not Path(scratch).exists()
    assert list(tmp_path.iterdir()) == []


@as_root
async def test_a_job_runs_as_another_user_with_a_home_of_its_own() -> None:
    async with open_kitchen(user="nobody", processes=50) as kitchen:
        facts = ast.literal_eval(result_of(await kitchen.cook("surroundings_of_a_program")))
        assert facts["ids"] == [NOBODY.pw_uid, NOBODY.pw_uid, NOBODY.pw_gid, sorted({NOBODY.pw_gid})]
        assert facts["home"] == facts["cwd"]
        assert facts["limits"]["NPROC"] == 200
        assert isinstance((await kitchen.cook("reads", "/etc/shadow")).outcome, Failed)
        assert isinstance((await kitchen.cook("signals", str(os.getppid()))).outcome, Failed)


async def test_a_job_of_another_user_still_dies_with_all_its_processes(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run jobs as another user")
    async with open_kitchen(user="nobody") as kitchen:
        pid = result_of(await kitchen.cook("daemon", "ignore SIGTERM"))
        assert is_dead(pid)
        report = await kitchen.cook("sleeps", seconds=0.3)
        assert report.outcome.verdict is Verdict.TIMED_OUT
        assert "in sleeps" in report.outcome.error.frames  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("user", "words"), [("no-such-user", "no such user"), ("0:0", "is root"), ("root", "is root"), ("1:x", "uid:gid")]
)
@as_root
async def test_a_user_that_cannot_be_is_refused_at_the_start(user: str, words: str) -> None:
    with pytest.raises(NotSupported, match=words):
        async with open_kitchen(user=user):
            pass


@as_root
def test_what_the_user_of_jobs_may_not_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    user = resolve_user("nobody")
    assert user is not None
    let_others_pass(tmp_path / "closed")
    closed = tmp_path / "closed"
    (closed / "lib" / "python").mkdir(parents=True)
    closed.chmod(0o700)
    assert closed_to(user, [tmp_path, closed / "lib" / "python", closed / "lib"]) == [closed]
    monkeypatch.setattr(sys, "prefix", str(closed / "lib"))
    check_reach(user, "app:app", StartMethod.FORK)
    assert f"WORKER_INGEST_USER=nobody may not read {closed}" in caplog.text
    with pytest.raises(NotSupported, match=f"may not read {closed}"):
        check_reach(user, "app:app", StartMethod.EXEC)


async def test_a_worker_without_the_right_refuses_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NotSupported, match="runs as root"):
        async with open_kitchen(user="nobody"):
            pass


async def test_files_descriptors_and_threads_are_bounded_as_errors_and_not_as_deaths() -> None:
    async with open_kitchen(scratch_mb=3, open_files=80) as kitchen:
        report = await kitchen.cook("writes_file", "5")
        assert isinstance(report.outcome, Failed)
        assert "File too large" in report.outcome.error.message
        report = await kitchen.cook("opens_files")
        assert isinstance(report.outcome, Failed)
        assert "Too many open files" in report.outcome.error.message
        # With stacks of 8 MiB, forty threads would be over 100 MB.
        assert result_of(await kitchen.cook("threads_at_once", "40")) == "all ran"


@pytest.mark.parametrize("recipe", ["fills_scratch", "fills_deleted_file", "fills_deep_folder"])
async def test_a_scratch_folder_that_grows_too_large_fails_the_job_as_a_full_disk_would(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SCRATCH_SECONDS", 0.1)
    async with open_kitchen(scratch_mb=20) as kitchen:
        report = await kitchen.cook(recipe, "25")
        assert isinstance(report.outcome, Failed), report
        assert report.outcome.error.type == "ScratchFull"
        assert report.evidence["intent"] == "scratch"


async def test_a_hostile_tree_is_removed_and_nothing_outside_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SCRATCH_SECONDS", 60)  # it would be found too deep
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    async with open_kitchen(scratch_path=str(tmp_path)) as kitchen:
        execution = kitchen.order("hostile_scratch", str(outside))
        scratch = result_of(await kitchen.pool.run(execution))
        if execution.lingering is not None:
            await execution.lingering
        assert not Path(scratch).exists()
    assert (outside / "precious").read_text() == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]


@with_landlock
async def test_with_read_paths_nothing_else_is_readable_and_only_scratch_is_writable(tmp_path: Path) -> None:
    open_folder, secret = tmp_path / "open", tmp_path / "secret"
    open_folder.mkdir()
    for path in (open_folder / "file", secret):
        path.write_text("hello")
    async with open_kitchen(read_paths=(str(open_folder), str(Path.cwd()))) as kitchen:
        assert result_of(await kitchen.cook("reads", str(open_folder / "file"))) == "hello"
        for recipe, path in (("reads", secret), ("writes", open_folder / "new"), ("writes", secret)):
            report = await kitchen.cook(recipe, str(path))
            assert isinstance(report.outcome, Failed), (recipe, path, report)
            assert report.outcome.error.type == "PermissionError"
        assert (await kitchen.cook("writes", "here")).outcome == Succeeded(None)
        assert (await kitchen.cook("writes", "/dev/null")).outcome == Succeeded(None)
        # Programs, crashes and stacks need no more than that.
        assert result_of(await kitchen.cook("token")) == "1"
        report = await kitchen.cook("segfault")
        assert isinstance(report.outcome, Died)
        assert "handlers_app.py" in report.outcome.error.frames


@with_landlock
async def test_with_write_paths_these_are_writable_too(tmp_path: Path) -> None:
    store, secret = tmp_path / "store", tmp_path / "secret"
    store.mkdir()
    async with open_kitchen(read_paths=(str(Path.cwd()),), write_paths=(str(store),)) as kitchen:
        assert (await kitchen.cook("writes", str(store / "new"))).outcome == Succeeded(None)
        assert isinstance((await kitchen.cook("writes", str(secret))).outcome, Failed)


async def test_write_paths_that_restrict_nothing_or_are_not_there_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="without WORKER_INGEST_READ_PATHS"):
        async with open_kitchen(write_paths=(str(tmp_path),)):
            pass
    if landlock.abi() > 0:
        with pytest.raises(NotSupported, match="WORKER_INGEST_WRITE_PATHS names"):
            async with open_kitchen(read_paths=("/",), write_paths=(str(tmp_path / "missing"),)):
                pass


@with_landlock
async def test_a_read_path_that_is_not_there_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="no absolute path that exists"):
        async with open_kitchen(read_paths=(str(tmp_path / "missing"),)):
            pass


async def test_read_paths_without_landlock_are_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    with pytest.raises(NotSupported, match="needs Landlock"):
        async with open_kitchen(read_paths=("/",)):
            pass


@with_scopes
async def test_a_job_can_signal_its_own_processes_and_nobody_elses() -> None:
    stranger = await asyncio.create_subprocess_exec("sleep", "600")  # of the supervisor's session, as it is itself
    async with open_kitchen() as kitchen:
        for target in (stranger.pid, kitchen.pool._spawner.pid):
            report = await kitchen.cook("signals", str(target))
            assert isinstance(report.outcome, Failed), report
            assert report.outcome.error.type == "PermissionError"
        stranger.kill()
        assert await stranger.wait() == -9
        assert result_of(await kitchen.cook("kills_its_helper")) == "-9"
        assert kitchen.pool.template_up


async def test_a_fork_bomb_dies_and_the_supervisor_still_spawns(tmp_path: Path) -> None:
    """Scenario 14: all of it is gone with the verdict, and jobs start before and after."""
    user = "nobody" if os.geteuid() == 0 else ""
    tmp_path.chmod(0o777)
    let_others_pass(tmp_path)
    async with open_kitchen(user=user, processes=40) as kitchen:
        execution = kitchen.order("fork_bomb", str(tmp_path / "ready"))
        running = asyncio.create_task(kitchen.pool.run(execution))
        await until((tmp_path / "ready").exists)
        assert (await kitchen.cook("prints", "hello")).outcome == Succeeded(None)
        report = await asyncio.wait_for(running, 20)
        assert report.outcome.verdict is Verdict.MEMORY_EXCEEDED
        assert report.evidence["intent"] == "processes"
        assert "more than 40 processes" in report.evidence["why"]
        assert (await kitchen.cook("prints", "hello")).outcome == Succeeded(None)
        await until(lambda: job_processes(template=kitchen.pool._spawner.pid) == [])


async def test_more_processes_than_allowed_are_a_kill_also_in_sessions_of_their_own() -> None:
    async with open_kitchen(processes=20) as kitchen:
        report = await kitchen.cook("many_helpers", "30")
        assert isinstance(report.outcome, Died)
        assert report.outcome.error.type == "TooManyProcesses"


async def test_the_dead_that_wait_for_us_to_reap_them_are_not_counted() -> None:
    async with open_kitchen(processes=20) as kitchen:
        assert (await kitchen.cook("orphans", "600")).outcome == Succeeded(None)


async def test_more_threads_than_allowed_are_a_kill() -> None:
    async with open_kitchen(processes=1) as kitchen:
        report = await kitchen.cook("threads_that_wait", str(kitchen.pool._options.threads))
        assert isinstance(report.outcome, Died)
        assert report.outcome.error.type == "TooManyProcesses"
        assert f"more than {kitchen.pool._options.threads} threads" in report.evidence["why"]


async def test_what_is_off_is_said_once_at_the_start_with_what_turns_it_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "oomph.ingest")
    async with open_kitchen(cgroup="off"):
        pass
    (told,) = [record for record in caplog.records if "children are enclosed" in record.getMessage()]
    said = told.getMessage()
    assert told.levelname == "INFO"
    for words in (
        "children are enclosed without a cgroup for each (WORKER_INGEST_CGROUP=off); ",
        "(WORKER_INGEST_USER",
        "a list of the paths that they may read (WORKER_INGEST_READ_PATHS)",
        "docs/explanation/enclosure.md",
    ):
        assert words in said
    assert ("limits of other processes" in said) is not seccomp.is_available()
    assert ("/dev/shm" in said) is not shm.is_available()
    assert ("signals" in said) is not landlock.scopes_signals()
    (detail,) = [record.getMessage() for record in caplog.records if record.levelname == "DEBUG"]
    assert ("/dev/shm: its own" in detail) is shm.is_available()
    assert "start: fork" in detail


@with_landlock
@as_root
async def test_what_is_on_is_not_listed(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level("INFO")
    async with open_kitchen(cgroup="off", user="nobody", read_paths=(str(tmp_path),)):
        pass
    (said,) = [record.getMessage() for record in caplog.records if "children are enclosed" in record.getMessage()]
    assert "enclosed without a cgroup for each (" in said
    assert "WORKER_INGEST_USER" not in said
    assert "WORKER_INGEST_READ_PATHS" not in said
