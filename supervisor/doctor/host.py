"""Readings of this host, each handed to its check. A worker is judged as it would be if it were started right here."""

import os
import resource
from collections.abc import Callable, Iterator

from pools import landlock, process, seccomp, startup
from pools.identity import Marks
from pools.procfs import parse_sizes, slurp
from pools.user import resolve_user
from supervisor.doctor import cgroup, host_checks
from supervisor.doctor.findings import Finding, surviving, unreadable
from supervisor.settings import Settings
from supervisor.sizing import ingest_options


def examine_host(settings: Settings, slots: int) -> Iterator[Finding]:
    """What the children of a worker with these settings, so many at once, would find. Blocks, for milliseconds."""
    options = ingest_options(settings)
    root = os.geteuid() == 0
    checks: dict[str, Callable[[], Finding]] = {
        "kernel": lambda: host_checks.kernel(os.uname().release, _refusal(process.check_support)),
        "subreaper": lambda: host_checks.subreaper(_refusal(process.adopt_orphans)),
        "overcommit": lambda: host_checks.overcommit(
            int(slurp("/proc/sys/vm/overcommit_memory")), _meminfo(), settings.worker_ingest_memory_mb
        ),
        "swap": lambda: host_checks.swap(_meminfo()),
        "oom_score_adj": lambda: host_checks.oom_score(int(slurp("/proc/self/oom_score_adj"))),
        "Landlock": lambda: host_checks.landlock(
            landlock.abi(),
            _refusal(lambda: startup.readable_paths(options.read_paths))
            or _refusal(lambda: startup.writable_paths(options)),
        ),
        "seccomp": lambda: host_checks.seccomp(available=seccomp.is_available(), machine=os.uname().machine),
        "user": lambda: host_checks.user(
            options.user, is_root=root, refusal=_refusal(lambda: resolve_user(options.user))
        ),
        "open files": lambda: host_checks.open_files(*_limits(resource.RLIMIT_NOFILE), slots, options.open_files),
        "processes": lambda: host_checks.processes(
            None if root and not options.user else _limits(resource.RLIMIT_NPROC)[1], options.processes, slots
        ),
        "marks": lambda: host_checks.resident_limit(marks_are_owned=Marks().are_owned),
    }
    yield from (surviving(name, check) for name, check in checks.items())
    yield from _examine_cgroup(settings.worker_ingest_cgroup)


def _examine_cgroup(wanted: str) -> Iterator[Finding]:
    try:
        reading = cgroup.read_cgroup(wanted)
    except OSError as problem:
        yield unreadable("cgroup", problem)
        return
    yield cgroup.version(reading)
    yield cgroup.delegation(reading)
    if reading.makes_leaves:
        yield cgroup.controllers(reading)
    yield cgroup.group_kill(reading)


def _refusal(step: Callable[[], object]) -> str | None:
    """Why a worker would not get past this step of its start."""
    try:
        step()
    except process.NotSupported as refusal:
        return str(refusal)
    return None


def _meminfo() -> dict[str, int]:
    return parse_sizes(slurp("/proc/meminfo"))


def _limits(limit: int) -> tuple[int | None, int | None]:
    soft, hard = resource.getrlimit(limit)
    return _finite(soft), _finite(hard)


def _finite(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit
