"""What a template must not have when it forks, checked after each import, so that the module can be named.

No second thread (whose locks would stay locked), no event loop (whose epoll set would be shared), no socket (whose
stream would be shared), no child of its own (which would outlive it, and whose end no job could wait for), and nothing
that keeps a fork from being made and waited for.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pools.leftovers import children_reader, stats
from pools.procfs import slurp

ENDING_SECONDS = 1.0  # for a thread that ends: the kernel knows one still when Python has joined it
LOOK_SECONDS = 0.005
_BORN = 42  # the exit status of a fork that reached its own code

# Kernel objects that a fork shares with its parent, by what their descriptor is called.
_SHARED = {
    "anon_inode:[eventpoll]": "an event loop (an epoll set)",
    "anon_inode:[io_uring]": "a ring of io_uring",
}


class Unsafe(Exception):
    """What was loaded cannot be forked safely."""


def check_fork_safety(step: str, control_fd: int, started: list[str]) -> None:
    """Raise `Unsafe`, naming `step`, which has just been done. `started` is what `witness_threads` collects."""
    _refuse_threads(step, started)
    _refuse_descriptors(step, control_fd)
    _refuse_children(step)
    _refuse_what_ends_a_fork(step)


def open_descriptors() -> set[int]:
    """All but the standard ones."""
    return {number for number in map(int, os.listdir("/proc/self/fd")) if number > 2 and _target(number)}


@contextmanager
def witness_threads() -> Iterator[list[str]]:
    """Collect, while modules load, which line of which module started each Python thread."""
    started: list[str] = []
    original = threading.Thread.start

    def start(self: threading.Thread) -> None:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        module = frame.f_globals.get("__name__", "?")
        started.append(f"{self.name} by module {module} ({frame.f_code.co_filename}:{frame.f_lineno})")
        original(self)

    threading.Thread.start = start  # type: ignore[method-assign]
    try:
        yield started
    finally:
        threading.Thread.start = original  # type: ignore[method-assign]


def _refuse_threads(step: str, started: list[str]) -> None:
    until = time.monotonic() + ENDING_SECONDS
    while (count := len(os.listdir("/proc/self/task"))) > 1 and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
    if count > 1:
        names = started or ["by native code"]
        raise Unsafe(
            f"{step} left {count - 1} thread(s) running, and a process with threads cannot be forked safely: "
            f"{'; '.join(names)}. Start threads inside a handler, on first use."
        )


def _refuse_descriptors(step: str, control_fd: int) -> None:
    targets = {descriptor: _target(descriptor) for descriptor in open_descriptors() - {control_fd}}
    for what in filter(None, map(_SHARED.get, targets.values())):  # before its sockets: a loop has a pair of them
        raise Unsafe(f"{step} left {what} behind, which all children would share. Make it inside a handler.")
    for descriptor, target in targets.items():
        if target.startswith("socket:"):
            raise Unsafe(
                f"{step} left a socket open ({_peer(descriptor)}), whose stream all children would share. "
                "Connect inside a handler, on first use."
            )


def _refuse_children(step: str) -> None:
    running = [stat.pid for stat in stats(children_reader()(os.getpid())) if not stat.is_dead]
    if running:
        names = [f"{pid} ({_command(pid)})" for pid in running]
        raise Unsafe(f"{step} left a process running, {', '.join(names)}, that no job owns. Start it inside a handler.")


def _refuse_what_ends_a_fork(step: str) -> None:
    # Ignored, it would make the kernel reap each child before anybody can wait for it.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        if (pid := os.fork()) == 0:
            os._exit(_BORN)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except OSError as error:
        raise Unsafe(f"after {step} this process cannot be forked: {error.strerror}") from error
    if code != _BORN:
        raise Unsafe(
            f"after {step} every fork of this process ends at once (exit status {code}). Look for what is registered "
            "with os.register_at_fork or pthread_atfork."
        )


def _target(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:  # the descriptor that listed the folder
        return ""


def _peer(descriptor: int) -> str:
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        try:
            peer: Any = copy.getpeername()
        except OSError:
            peer = "not connected"
        return f"{getattr(copy.family, 'name', copy.family)}, {peer}"


def _command(pid: int) -> str:
    try:
        return slurp(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    except OSError:
        return "?"
