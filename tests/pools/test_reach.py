"""What a job can do to others, and what it can leave where no process shows it: seccomp, capabilities, /dev/shm."""

import ast
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.outcome import Died, Verdict
from pools import seccomp, shm
from tests.pools.kitchen import Kitchen, result_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
with_seccomp = pytest.mark.skipif(
    not seccomp.is_available(), reason="this kernel has no filters, or is of another kind"
)
with_own_shm = pytest.mark.skipif(not shm.is_available(), reason="this worker may not mount")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to lose")
on_x86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="by number")


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


async def _try(kitchen: Kitchen, *lines: str) -> list[str]:
    return list(ast.literal_eval(result_of(await kitchen.cook("tries", "\n".join(lines)))))


@with_seccomp
async def test_a_job_sets_limits_and_priorities_of_itself_only(
    kitchen: Kitchen, stranger: subprocess.Popen[bytes]
) -> None:
    def state(pid: int) -> list[object]:
        limits = [resource.prlimit(pid, limit) for limit in (resource.RLIMIT_CPU, resource.RLIMIT_NOFILE)]
        return [*limits, os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid), os.sched_getscheduler(pid)]

    others = [stranger.pid, os.getpid(), kitchen.pool._spawner.pid]
    before = [state(pid) for pid in others if pid is not None]
    for pid in others:
        assert (
            await _try(
                kitchen,
                f"resource.prlimit({pid}, resource.RLIMIT_CPU, (1000, 1000))",
                f"os.setpriority(os.PRIO_PROCESS, {pid}, 5)",
                "os.setpriority(os.PRIO_USER, 0, 5)",
                f"os.sched_setaffinity({pid}, {{0}})",
                f"os.sched_setscheduler({pid}, os.SCHED_IDLE, os.sched_param(0))",
                f"os.sched_setparam({pid}, os.sched_param(0))",
            )
            == ["PermissionError"] * 3 + ["None"] * 3
        )
    assert [state(pid) for pid in others if pid is not None] == before
    assert await _try(
        kitchen,
        "resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))",
        "resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE)",
        "os.nice(0) == os.nice(1) - 1",
        "os.sched_setaffinity(0, {0}) or os.sched_getaffinity(0)",
        "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)) or os.sched_getscheduler(0) == os.SCHED_IDLE",
    ) == ["None", "(50, 50)", "True", "{0}", "True"]


@with_seccomp
async def test_a_job_keeps_its_mark_in_all_its_processes(kitchen: Kitchen) -> None:
    lower = "import resource as r; r.setrlimit(r.RLIMIT_RSS, (0, 0))"
    assert await _try(
        kitchen,
        "resource.setrlimit(resource.RLIMIT_RSS, (0, 0))",
        f"run({sys.executable!r}, '-c', {lower!r})",
        "resource.getrlimit(resource.RLIMIT_RSS)[0] > 0",
    ) == ["ValueError", "CalledProcessError", "True"]


@with_seccomp
async def test_a_worker_inside_a_job_says_that_it_cannot_mark_its_own(kitchen: Kitchen) -> None:
    check = "from pools import process\ntry: process.check_support()\nexcept process.NotSupported as e: print(e)"
    (said,) = await _try(kitchen, f"run({sys.executable!r}, '-c', {check!r})")
    assert "in a job of another worker" in said


@with_seccomp
@on_x86_64
async def test_what_would_outlast_the_job_uncounted_is_refused(kitchen: Kitchen) -> None:
    assert (
        await _try(
            kitchen,
            "call(29, 0, 4096, 0o1600)",
            "call(64, 0, 1, 0o1600)",
            "call(68, 0, 0o1600)",
            "call(240, b'oomph', 0o102, 0o600, None)",
            "call(165, b'none', os.getcwd().encode(), b'tmpfs', 0, None)",
            "call(430, b'tmpfs', 0)",
        )
        == ["ENOSYS"] * 4 + ["EPERM"] * 2
    )


@with_seccomp
@on_x86_64
async def test_calls_by_the_numbers_of_another_architecture_reach_nothing(kitchen: Kitchen) -> None:
    assert await _try(kitchen, "call(0x40000000 + 160, 5, b'0' * 16)") == ["ENOSYS"]
    report = await kitchen.cook("calls_as_a_32_bit_program")
    assert isinstance(report.outcome, Died)
    assert report.outcome.verdict is Verdict.CRASHED
    assert report.process is not None
    assert report.process.signal == "SIGSYS"


async def test_a_library_may_make_threads_that_are_bound_to_a_processor(kitchen: Kitchen) -> None:
    assert result_of(await kitchen.cook("pins_a_new_thread")) == "0"


@as_root
async def test_a_job_of_root_keeps_only_the_capabilities_of_files(kitchen: Kitchen, tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.write_text("x")
    os.chown(others, 65534, 65534)
    others.chmod(0o600)
    status = "Path('/proc/self/status').read_text()"
    effective, of_a_program, read, *refused = await _try(
        kitchen,
        f"{status}.split('CapEff:')[1].split()[0]",
        "run('grep', 'CapPrm', '/proc/self/status').split()[1]",
        f"Path({str(others)!r}).read_text()",
        "__import__('socket').sethostname(os.uname().nodename)",
        "os.mknod('device', 0o020600, os.makedev(1, 3))",
        f"Path('/proc/{os.getpid()}/environ').read_text()",
        "os.setresuid(1, 1, 1)",
    )
    assert int(effective, 16) | int(of_a_program, 16) == 0b11111
    assert read == "x"
    assert refused == ["PermissionError"] * 4


@with_own_shm
async def test_what_a_job_leaves_in_shared_memory_is_gone_with_it(kitchen: Kitchen) -> None:
    pid = result_of(await kitchen.cook("fills_shm", "60 0"))
    assert [name for name in os.listdir("/dev/shm") if name.startswith(f"oomph-test-{pid}-")] == []


@with_own_shm
async def test_what_lies_in_shared_memory_counts_also_when_nobody_has_it_open(kitchen: Kitchen) -> None:
    """Either alone would be within the limit of 100 MB."""
    report = await kitchen.cook("fills_shm", "60 60")
    assert report.outcome.verdict is Verdict.MEMORY_EXCEEDED, report  # type: ignore[union-attr]


@with_own_shm
async def test_shared_memory_has_an_end_at_the_limit(kitchen: Kitchen) -> None:
    assert await _try(
        kitchen, "os.statvfs('/dev/shm').f_blocks * os.statvfs('/dev/shm').f_frsize >> 20", "os.listdir('/dev/shm')"
    ) == ["100", "[]"]


async def test_processes_of_a_job_share_a_lock(kitchen: Kitchen) -> None:
    assert result_of(await kitchen.cook("shares_a_lock")) == "0"
