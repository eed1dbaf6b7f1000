"""The one place where signals are sent, and where processes are made, owned, marked and reaped.

Two rules keep a signal from ever hitting a stranger: it goes through a pidfd, or to the group of a leader that is
alive or not yet reaped, whose pid the kernel therefore cannot give away. And nobody here waits for "any child":
that would take the exit status of a process that somebody else started.
"""

import ctypes
import errno
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

# RLIMIT_RSS has had no effect since Linux 2.4, yet every descendant inherits it through fork and exec, and
# /proc/PID/limits shows it even of a zombie. So its value says which job a process comes from, whatever that process
# did to its environment, its session or its files.
MARK = resource.RLIMIT_RSS

_libc = ctypes.CDLL(None, use_errno=True)


class NotSupported(RuntimeError):
    """This system cannot own children the way the pool `ingest` must."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What the kernel kept of a process that was reaped. `status` is the raw wait status."""

    status: int
    cpu_seconds: float
    peak_kb: int


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def check_support() -> None:
    """Raise `NotSupported`, saying what is missing, unless this is a Linux that lets us own children by pidfd."""
    if not sys.platform.startswith("linux"):
        raise NotSupported(f"the pool `ingest` runs on Linux only, not on {sys.platform}")
    try:
        resource.setrlimit(MARK, resource.getrlimit(MARK))
    except ValueError as error:
        raise NotSupported(
            "RLIMIT_RSS cannot be set here, as in a job of another worker, which carries that worker's mark: the pool "
            "`ingest` cannot run inside of it"
        ) from error
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        raise NotSupported(
            f"pidfd_open is refused here ({errno.errorcode.get(error.errno or 0, '?')}): the pool `ingest` needs "
            "Linux 5.4 or newer, and a seccomp profile that allows pidfd_open (Docker 20.10 or newer)"
        ) from error


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent has gone. Raises `NotSupported` where that is refused."""
    try:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    except OSError as error:
        raise NotSupported(
            f"prctl(PR_SET_CHILD_SUBREAPER) is refused here ({error.strerror}): the pool `ingest` needs a seccomp "
            "profile that allows it"
        ) from error


def forbid_new_privileges() -> None:
    """From now on no program that this process or its descendants execute gains anything by its set-user-id bit."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel SIGKILL this process when `parent` dies; exit now if it already has.

    Arm it only once `parent` really is the parent: the signal also comes when an earlier one ends.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def start_program(arguments: list[str], environment: Mapping[str, str], inherited: int) -> int:
    """Start a program in its own group with /dev/null as its input and the descriptor `inherited` at its own number.

    posix_spawn, so that it is safe in a process with threads. Returns the pid.
    """
    os.set_inheritable(inherited, True)
    try:
        return os.posix_spawn(
            arguments[0],
            arguments,
            environment,
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
            setpgroup=0,  # Ctrl-C at a terminal is for the supervisor to interpret
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
        )
    finally:
        os.set_inheritable(inherited, False)


def close_descriptors_except(kept: Collection[int]) -> None:
    """Close every descriptor above standard error that is not `kept`."""
    low = 3
    for number in sorted(n for n in kept if n >= low):
        os.closerange(low, number)
        low = number + 1
    os.closerange(low, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def carry_mark(mark: int) -> None:
    """Mark this process and all that will descend from it."""
    resource.setrlimit(MARK, (mark, mark))


def send(pidfd: int, number: signal.Signals) -> None:
    """Send a signal to the one process that `pidfd` holds, if it still runs and is ours to signal."""
    with suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(pidfd, number)


def exists(pid: int) -> bool:
    """Whether any process, also one that we may not look at, has this pid now."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def kill_group(leader: int) -> None:
    """SIGKILL the group of `leader`, a child of ours that is not reaped yet.

    A child that has not made its group yet has none, and nobody else can have one of its number.
    """
    assert leader > 1
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def kill_and_wait(pidfds: Collection[int], deadline: float) -> None:
    """SIGKILL each, then wait until all are dead or the monotonic clock reads `deadline`."""
    poll = select.poll()
    for pidfd in pidfds:
        send(pidfd, signal.SIGKILL)
        poll.register(pidfd, select.POLLIN)
    waiting = set(pidfds)
    while waiting and (left := deadline - time.monotonic()) > 0:
        for pidfd, _ in poll.poll(left * 1000):
            poll.unregister(pidfd)
            waiting.discard(pidfd)


def is_over(pidfd: int) -> bool:
    """Whether the process has ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def ended_well(pidfd: int) -> bool:
    """Whether our child that `pidfd` holds has exited with code 0. It stays to be reaped."""
    try:
        ending = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # another waiter in this process took its status
        return False
    return ending is not None and ending.si_code == os.CLD_EXITED and ending.si_status == 0


def reap(pid: int) -> Ending | None:
    """Collect one dead child. None if another waiter in this process took its status, or if it still runs."""
    try:
        reaped, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if reaped == 0:
        return None
    return Ending(status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)


def reap_held(pidfd: int) -> bool:
    """Whether the child that `pidfd` holds was dead: collects it, and never a later one of the same pid."""
    try:
        return os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG) is not None
    except ChildProcessError:  # another thread was first
        return True
