"""The child's side of its enclosure, as named steps: what a job may use, reach and become.

Every step is irrevocable and inherited by whatever the job starts. The order matters where a comment says so.
"""

import os
import resource
import tempfile
from collections.abc import Iterable

from pools import capabilities, landlock, process, seccomp, shm
from pools.frames import Setup, UserFrame

OOM_SCORE_RAISE = 600  # above the +500 that doubles a process's badness: the kernel takes a child before its parents
_MIB = 1 << 20


def enclose(setup: Setup) -> None:
    """Enclose this process, which must have one thread. Raises `OSError` or `ValueError` where a step is refused."""
    _raise_oom_score()
    _limit_resources(setup)
    _enter_scratch(setup.scratch, setup.user)
    if setup.shm_mb:
        shm.mount_own(setup.shm_mb)  # before Landlock, which forbids mounts, and before the right to it is given up
    process.forbid_new_privileges()
    # Before the change of user: the paths of its rules may lie where that user may not go.
    landlock.restrict(setup.readable, [setup.scratch, *setup.writable])
    if setup.user is not None:
        _become(setup.user)
    capabilities.keep_those_of_files()  # which the change of user needs more than
    # After the change of user, which takes a parent-death signal back.
    process.die_with_parent(setup.supervisor)
    seccomp.install()


def limit_cpu(seconds: int) -> None:
    """A backstop for helpers that outlive a killed supervisor; while that lives, its deadline comes first."""
    _limit(resource.RLIMIT_CPU, seconds)


def _raise_oom_score() -> None:
    descriptor = os.open("/proc/self/oom_score_adj", os.O_RDWR)
    try:
        score = min(1000, int(os.read(descriptor, 16)) + OOM_SCORE_RAISE)
        os.pwrite(descriptor, b"%d" % score, 0)
    finally:
        os.close(descriptor)


def _limit_resources(setup: Setup) -> None:
    _limit(resource.RLIMIT_CORE, 0)  # a core of a capped child is gigabytes of somebody's data
    for limit, value in _positive(
        (resource.RLIMIT_NOFILE, setup.open_files),
        (resource.RLIMIT_FSIZE, setup.file_mb * _MIB),
        (resource.RLIMIT_NPROC, setup.processes),
    ):
        _limit(limit, value)


def _positive(*limits: tuple[int, int]) -> Iterable[tuple[int, int]]:
    return ((limit, value) for limit, value in limits if value > 0)


def _limit(limit: int, value: int) -> None:
    _, hard = resource.getrlimit(limit)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(limit, (value, value))


def _enter_scratch(folder: str, user: UserFrame | None) -> None:
    os.chdir(folder)
    for name in ("TMPDIR", "TMP", "TEMP", "PWD"):  # one by one: `update` writes to, and so copies, 110 pages more
        os.environ[name] = folder
    tempfile.tempdir = None  # what a preloaded module made it look up is the template's
    if user is not None:
        os.environ.update(HOME=folder, USER=user.name, LOGNAME=user.name)
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"):
            os.environ.pop(name, None)


def _become(user: UserFrame) -> None:
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    assert os.getresuid() == (user.uid,) * 3, "the kernel did not change the user"
