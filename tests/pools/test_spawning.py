"""When there is no room for a child: no descriptor, no process, no folder, no right. And pids that come again."""

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.outcome import AttemptReport, Returned, Succeeded, Verdict
from pools import leftovers
from pools.leftovers import stats
from tests.pools.kitchen import SPEC, Kitchen, is_dead, open_kitchen, result_of, until

PIDS = Path("/sys/fs/cgroup/pids")


def uncharged(report: AttemptReport) -> str:
    assert isinstance(report.outcome, Returned), report
    assert report.outcome.verdict is Verdict.SPAWN_FAILED
    assert report.outcome.delay.total_seconds() > 0
    return report.outcome.why


@pytest.fixture
def few_descriptors() -> Iterator[list[int]]:
    """Room for hardly any descriptor more; the list gives them back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    yield held
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for descriptor in held:
        os.close(descriptor)


def fill_descriptors(held: list[int], left: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, hard))
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        for _ in range(left):
            os.close(held.pop())


async def test_without_a_descriptor_a_job_is_given_back_and_runs_later(few_descriptors: list[int]) -> None:
    """Scenario 29: EMFILE at every place, from none free to just enough."""
    async with open_kitchen() as kitchen:
        reports = []
        for left in range(12):
            fill_descriptors(few_descriptors, left)
            report = await asyncio.wait_for(kitchen.cook("ok"), 20)
            reports.append(report.outcome.verdict)
            assert report.outcome.verdict in (Verdict.SPAWN_FAILED, Verdict.SUCCEEDED), (left, report)
            while few_descriptors:
                os.close(few_descriptors.pop())
        assert reports[0] is Verdict.SPAWN_FAILED
        assert reports[-1] is Verdict.SUCCEEDED
        assert kitchen.pool.children == 0
        assert (await kitchen.cook("ok")).outcome == Succeeded(None)


async def test_a_job_that_ends_while_no_descriptor_is_free_is_reported_and_its_daemon_dies(
    few_descriptors: list[int], tmp_path: Path
) -> None:
    """Scenario 29: the clean-up itself may find no descriptor; then it is done as soon as there is one."""
    async with open_kitchen() as kitchen:
        running = asyncio.create_task(kitchen.cook("daemon_after_a_while"))
        await until(lambda: kitchen.pool.children == 1)
        child = next(iter(kitchen.pool._roster.children.values()))
        await until(lambda: child.gate_opened)
        fill_descriptors(few_descriptors, 0)
        pid = result_of(await asyncio.wait_for(running, 20))
        while few_descriptors:
            os.close(few_descriptors.pop())
        await until(lambda: is_dead(pid))


@pytest.fixture
def few_processes() -> Iterator[Path]:
    if not os.access(PIDS / "cgroup.procs", os.W_OK):
        pytest.skip("there is no pids controller of cgroup v1 here")
    folder = PIDS / f"oomph-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    deadline = time.monotonic() + 5
    while (folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    folder.rmdir()


@pytest.mark.parametrize(("spec", "limits"), [(SPEC, ["1"]), ("tests.pools.at_fork_app:app", ["1", "2"])])
async def test_where_the_kernel_refuses_a_fork_the_job_is_given_back(
    spec: str, limits: list[str], few_processes: Path
) -> None:
    """Scenario 29: EAGAIN, at the one fork; where two are needed, at the first and at the second."""
    async with open_kitchen(spec=spec) as kitchen:
        (few_processes / "cgroup.procs").write_text(str(kitchen.pool._spawner.pid))
        for most in limits:
            (few_processes / "pids.max").write_text(most)
            assert "fork" in uncharged(await kitchen.cook("ok"))
            assert kitchen.pool.template_up
        (few_processes / "pids.max").write_text("max")
        assert isinstance((await kitchen.cook("ok")).outcome, Succeeded)


async def test_a_scratch_folder_that_cannot_be_made_gives_the_job_back(tmp_path: Path) -> None:
    """Scenario 29: a disk that is gone; and one that somebody only tidied up."""
    (tmp_path / "disk").mkdir()
    async with open_kitchen(scratch_path=str(tmp_path / "disk")) as kitchen:
        shutil.rmtree(tmp_path / "disk")
        assert "No such file" in uncharged(await kitchen.cook("ok"))
        (tmp_path / "disk").mkdir()
        assert (await kitchen.cook("ok")).outcome == Succeeded(None)
        shutil.rmtree(next((tmp_path / "disk").iterdir()))
        assert (await kitchen.cook("ok")).outcome == Succeeded(None)


def born_with(pid: int) -> "subprocess.Popen[bytes] | None":
    """A stranger that gets exactly this pid, if the kernel lets us choose."""
    for _ in range(50):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        stranger = subprocess.Popen(["sleep", "600"])
        if stranger.pid == pid:
            return stranger
        stranger.kill()
        stranger.wait()
    return None


@pytest.mark.skipif(not os.access("/proc/sys/kernel/ns_last_pid", os.W_OK), reason="pids cannot be chosen here")
async def test_a_stranger_that_gets_the_pid_of_a_reaped_child_is_never_signalled() -> None:
    """Scenario 37."""
    async with open_kitchen() as kitchen:
        running = asyncio.create_task(kitchen.cook("moment_later"))
        await until(lambda: kitchen.pool.children == 1)
        child = next(iter(kitchen.pool._roster.children.values()))
        await running
        stranger = born_with(child.pid)
        if stranger is None:
            pytest.skip("somebody else took the pid each time")
        try:
            seen = stats([stranger.pid])
            child.kill()
            child.kill_tree(set())
            child.tree.kill(set())
            kitchen.pool.kill_everything()
            leftovers.kill_processes([replace(seen[0], start=seen[0].start - 1)], time.monotonic() + 0.1)
            await kitchen.pool._watch.look_around()
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()


@pytest.mark.parametrize(("call", "words"), [(434, "pidfd_open is refused here"), (157, "prctl")])
def test_a_system_that_refuses_what_owning_children_needs_is_told_so(call: int, words: str) -> None:
    """Scenario 38: refused at the start with the reason; there is no second-best way to own a child safely."""
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers of system calls are those of x86_64")
    script = textwrap.dedent(f"""
        import asyncio, ctypes, struct
        from pools.ingest import IngestPool
        from pools.process import NotSupported
        from tests.pools.handlers_app import app

        libc = ctypes.CDLL(None)
        libc.prctl(38, 1, 0, 0, 0)
        steps = [(0x20, 0, 0, 0), (0x15, 0, 1, {call}), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
        program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
        class Filter(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]
        assert libc.prctl(22, 2, ctypes.byref(Filter(len(steps), ctypes.addressof(program))), 0, 0) == 0

        async def main():
            pool = IngestPool("tests.pools.handlers_app:app", app, memory_mb=100, slots=1)
            await pool.start()

        try:
            asyncio.run(main())
        except NotSupported as refused:
            print(refused)
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert words in done.stdout, done
    assert "seccomp" in done.stdout


async def test_pools_start_and_stop_again_and_again_without_a_trace() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        async with open_kitchen() as kitchen:
            assert isinstance(kitchen, Kitchen)
            assert (await kitchen.cook("ok")).outcome == Succeeded(None)
    assert sorted(os.listdir("/proc/self/fd")) == before
