"""What readings of a host mean: pure."""

import pytest

from pools.frames import Ready
from pools.options import StartMethod
from supervisor.doctor import cgroup, host_checks
from supervisor.doctor.cgroup import CgroupReading
from supervisor.doctor.findings import Finding, Level, surviving
from supervisor.doctor.preload import fork_safety
from supervisor.settings import Settings

OK, WARNING, ERROR = Level.OK, Level.WARNING, Level.ERROR
GIB = 1 << 20  # KiB


def test_a_kernel_that_gives_no_pidfd_is_an_error() -> None:
    assert host_checks.kernel("6.1.0", None).level is OK
    found = host_checks.kernel("5.2.0", "pidfd_open is refused here (ENOSYS)")
    assert found.level is ERROR
    assert "5.2.0" in found.found
    assert host_checks.subreaper("prctl is refused here").level is ERROR


@pytest.mark.parametrize(
    ("mode", "committed_gib", "level"),
    [(0, 100, OK), (1, 100, OK), (2, 8, WARNING), (2, 9.5, ERROR), (2, 12, ERROR)],
)
def test_strict_overcommit_is_told_and_an_error_where_no_child_fits(
    mode: int, committed_gib: float, level: Level
) -> None:
    sizes = {"CommitLimit": 10 * GIB, "Committed_AS": int(committed_gib * GIB)}
    assert host_checks.overcommit(mode, sizes, 1024).level is level


@pytest.mark.parametrize(("total", "free", "level"), [(0, 0, OK), (4, 3, OK), (4, 1, WARNING)])
def test_a_host_that_has_swapped_most_of_its_swap_is_told(total: int, free: int, level: Level) -> None:
    assert host_checks.swap({"SwapTotal": total * GIB, "SwapFree": free * GIB}).level is level


@pytest.mark.parametrize(
    ("own", "level", "child"),
    [(0, OK, 600), (400, OK, 1000), (401, WARNING, 1000), (1000, WARNING, 1000), (-599, OK, 1), (-997, WARNING, -397)],
)
def test_a_score_that_does_not_put_a_child_before_its_worker_or_others_is_told(
    own: int, level: Level, child: int
) -> None:
    found = host_checks.oom_score(own)
    assert found.level is level
    assert f"{child} for a child" in found.found


@pytest.mark.parametrize(
    ("abi", "refusal", "level"), [(6, None, OK), (5, None, WARNING), (0, None, WARNING), (0, "needs it", ERROR)]
)
def test_landlock_matters_by_its_version_and_by_what_was_asked_for(abi: int, refusal: str | None, level: Level) -> None:
    assert host_checks.landlock(abi, refusal).level is level


def test_root_without_another_user_for_its_jobs_is_told() -> None:
    assert host_checks.user("", is_root=True, refusal=None).level is WARNING
    assert host_checks.user("", is_root=False, refusal=None).level is OK
    assert host_checks.user("nobody", is_root=True, refusal=None).level is OK
    assert host_checks.user("nobdy", is_root=True, refusal="this system has no such user").level is ERROR


@pytest.mark.parametrize(
    ("soft", "hard", "slots", "level"),
    [(1024, 4096, 8, OK), (None, None, 1000, OK), (1024, 4096, 200, WARNING), (1024, 1000, 8, WARNING)],
)
def test_descriptors_must_suffice_for_all_children(
    soft: int | None, hard: int | None, slots: int, level: Level
) -> None:
    assert host_checks.open_files(soft, hard, slots, wanted=1024).level is level


def test_processes_and_marks_are_told_where_they_are_limited() -> None:
    assert host_checks.processes(None, 512, 8).level is OK
    assert host_checks.processes(4096, 512, 8).level is OK
    assert host_checks.processes(4095, 512, 8).level is WARNING
    assert host_checks.resident_limit(marks_are_owned=True).level is OK
    assert host_checks.resident_limit(marks_are_owned=False).level is WARNING
    assert host_checks.seccomp(available=False, machine="riscv64").level is WARNING


def reckoned(settings: Settings, kinds: dict[str, int | None], template_mb: float | None = None) -> Finding:
    return host_checks.memory(settings, kinds, cores=4, available_mb=4_000, host_mb=4_000, template_mb=template_mb)


def test_memory_is_reckoned_as_a_worker_reckons_it() -> None:
    found = reckoned(Settings(), {"parse": None}, 80.0)
    assert found == Finding("memory", OK, "3 children x 1,024 MB = 3,072 of 4,000 MB; the template has 80 MB")
    for settings, kinds, template_mb, told in (
        (Settings(worker_ingest_concurrency=5), {}, None, "allowed are 1 to 3"),
        (Settings(), {"parse": 5_000}, None, "kind parse asks for memory_mb=5000"),
        (Settings(worker_ingest_memory_mb=64), {}, 96.0, "below the 96 MB that the template itself uses"),
    ):
        found = reckoned(settings, kinds, template_mb)
        assert found.level is ERROR
        assert told in found.found


def test_a_budget_that_this_host_does_not_have_is_told() -> None:
    found = host_checks.memory(Settings(), {}, cores=4, available_mb=8_000, host_mb=4_000, template_mb=None)
    assert found.level is WARNING
    assert found.found == "4 children x 1,024 MB = 4,096 of 8,000 MB, of which this host has 4,000 MB"


def reading(**changes: object) -> CgroupReading:
    whole: dict[str, object] = {
        "wanted": "auto",
        "memory_version": 2,
        "folder": "/sys/fs/cgroup/oomph",
        "refusal": None,
        "controllers": ("memory", "pids"),
        "group_kill": None,
    }
    return CgroupReading(**{**whole, **changes})  # type: ignore[arg-type]


def test_a_delegated_cgroup_with_both_controllers_is_fine() -> None:
    for check in (cgroup.version, cgroup.delegation, cgroup.controllers, cgroup.group_kill):
        assert check(reading()).level is OK


def test_what_a_cgroup_lacks_is_told_and_an_error_only_where_it_was_named() -> None:
    assert cgroup.version(reading(memory_version=1)).level is WARNING
    assert cgroup.version(reading(memory_version=None)).level is WARNING
    refused = reading(refusal="/sys/fs/cgroup is not writable")
    assert cgroup.delegation(refused).level is WARNING
    assert not refused.makes_leaves
    assert cgroup.delegation(reading(wanted="/sys/fs/cgroup/a", refusal="it is not writable")).level is ERROR
    assert cgroup.delegation(reading(wanted="off")).level is OK
    assert "without pids" in cgroup.controllers(reading(controllers=("memory",))).found
    assert cgroup.group_kill(reading(group_kill="/sys/fs/cgroup")).level is WARNING


def test_a_template_that_refuses_is_an_error_with_its_reason() -> None:
    ready = Ready(data_mb=20, rss_mb=33, forks_twice="")
    assert fork_safety(StartMethod.FORK, ready).level is OK
    assert "not needed" in fork_safety(StartMethod.EXEC, ready).found
    assert fork_safety(StartMethod.FORK, "preloading x left 1 thread(s) running").level is ERROR
    assert "libx.so" in host_checks.forks("libx.so has at-fork handlers").found


def test_a_check_that_cannot_look_says_so_and_is_no_error() -> None:
    def look() -> Finding:
        raise PermissionError(13, "Permission denied", "/proc/sys/vm/overcommit_memory")

    found = surviving("overcommit", look)
    assert found.level is WARNING
    assert found.found.startswith("left out: PermissionError: ")
    assert "/proc/sys/vm/overcommit_memory" in found.found
