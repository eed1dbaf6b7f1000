"""The template: an exec'ed process with one thread that has everything imported, and only forks.

    supervisor                        template                       (middle)             child
        |  posix_spawn ------------------>|  load, check, freeze
        |<------------------ Ready/Refused|
        |  Spawn + job socket, pipe ----->|  fork ---------------------->|  fork ------------>|  setsid, ... gate
        |                                 |<------------------ its pid --|                    |
        |                                 |  waitpid(middle)          _exit                   |
        |<------------------- Spawned(pid)|                                                   |
        |  pidfd_open(pid), JobFrame -------------------------------------------------------->|  runs the job

The middle process ends before the pid is reported, so by then the kernel has given the child to the supervisor
(which must be a subreaper: `process.adopt_orphans`). The supervisor thus gets a real exit status of every child, and
the template may die or be replaced at any time without a child noticing.

What makes a fork safe here is what the template does not have: no second thread (whose locks would stay locked), no
event loop (whose epoll set would be shared), no connection (whose stream would be shared). It checks this after
every import and refuses to serve otherwise. It dies with the supervisor: by parent-death signal, and by end of file.

With the start method `exec` it loads nothing, and the child executes a fresh interpreter (`pools.fresh`) after the
second fork: for code that starts threads or opens connections when it is imported.
"""

import gc
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from setproctitle import setproctitle

from jobs.app import App
from jobs.failpoints import Failpoint, failpoint
from jobs.loading import AppError, import_module, load_app
from jobs.outcome import MAX_MESSAGE_CHARS, clip
from jobs.task import Pool
from pools import child, process
from pools.frames import (
    MAX_PACKET_BYTES,
    NotSpawned,
    Ping,
    Pong,
    Ready,
    Refused,
    Spawn,
    Spawned,
    packet,
    parse_request,
)
from pools.options import StartMethod
from pools.procfs import parse_sizes


class Unsafe(Exception):
    """What was loaded cannot be forked safely."""


def main(arguments: list[str]) -> NoReturn:
    """Run as `python -m pools.template SPEC METHOD CONTROL_FD SUPERVISOR_PID MARK`."""
    spec, method, (control_fd, supervisor, mark) = arguments[0], arguments[1], map(int, arguments[2:])
    process.die_with_parent(supervisor)
    process.close_descriptors_except([control_fd])
    process.carry_mark(mark)
    setproctitle(f"oomph: template for {spec}")
    control = socket.socket(fileno=control_fd)
    born: Callable[[Spawn, list[int], set[int]], NoReturn]
    try:
        born = partial(_execute, spec) if method == StartMethod.EXEC else partial(_live, _load(spec, control_fd))
    except (AppError, Unsafe) as error:
        control.send(packet(Refused(why=clip(str(error), MAX_MESSAGE_CHARS))))
        sys.exit(1)
    gc.collect()
    gc.disable()
    gc.freeze()  # a collection in a child would otherwise write to, and so copy, every page that holds an object
    sizes = parse_sizes(Path("/proc/self/status").read_text())
    control.send(packet(Ready(data_mb=sizes["VmData"] / 1024, rss_mb=sizes["VmRSS"] / 1024)))
    _serve(control, born)


def _live(app: App, spawn: Spawn, descriptors: list[int], kept: set[int]) -> NoReturn:
    job_fd, output_fd = descriptors
    child.live(app, job_fd, output_fd, spawn.mark, kept)


def _execute(spec: str, spawn: Spawn, descriptors: list[int], kept: set[int]) -> NoReturn:
    job_fd, output_fd = descriptors
    child.detach(job_fd, output_fd, spawn.mark, kept)
    os.set_inheritable(job_fd, True)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "pools.fresh", spec, str(job_fd)])  # noqa: S606


def _load(spec: str, control_fd: int) -> App:
    with _witness_threads() as started:
        app = load_app(spec)
        _check_fork_safety(f"loading {spec}", control_fd, started)
        for name in app.preload:
            import_module(name, f"preload of {name}")
            _check_fork_safety(f"preloading {name}", control_fd, started)
    if any(app.handlers[kind].is_async for kind in app.kinds(Pool.INGEST)):
        import asyncio  # noqa: F401  (once here, and not in every child)
    child.warm_up()
    return app


def _serve(control: socket.socket, born: Callable[[Spawn, list[int], set[int]], NoReturn]) -> NoReturn:
    kept = _open_descriptors() - {control.fileno()}  # files that a preloaded module holds open stay open in a child
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, MAX_PACKET_BYTES, 2)
        if not request:
            os._exit(0)  # the supervisor has gone
        reply: Spawned | NotSpawned | Pong
        match parse_request(request):
            case Ping(sequence=sequence):
                reply = Pong(sequence=sequence)
            case Spawn(sequence=sequence) as spawn:
                try:
                    reply = Spawned(sequence=sequence, pid=_fork_twice(partial(born, spawn, descriptors, kept)))
                    failpoint(Failpoint.SPAWNED)
                except OSError as error:
                    reply = NotSpawned(sequence=sequence, why=f"fork: {error.strerror}")
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(packet(reply))


def _fork_twice(born: Callable[[], NoReturn]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # both may have been closed when the worker was started
            stream.flush()
    read_end, write_end = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            pid = os.fork()
            if pid == 0:
                born()
            os.write(write_end, b"%d" % pid)
        except OSError as error:
            os.write(write_end, b"-%d" % (error.errno or 0))
        finally:
            os._exit(0)
    os.close(write_end)
    try:
        os.waitpid(middle, 0)  # only now is the child the supervisor's
        pid = int(os.read(read_end, 32) or b"-0")
    finally:
        os.close(read_end)
    if pid <= 0:
        raise OSError(-pid, os.strerror(-pid) if pid else "the middle process died")
    return pid


def _open_descriptors() -> set[int]:
    return {number for number in map(int, os.listdir("/proc/self/fd")) if number > 2 and _target(number)}


def _target(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:  # the descriptor that listed the folder
        return ""


def _check_fork_safety(step: str, control_fd: int, started: list[str]) -> None:
    if (count := len(os.listdir("/proc/self/task"))) > 1:
        names = started or ["by native code"]
        raise Unsafe(
            f"{step} left {count - 1} thread(s) running, and a process with threads cannot be forked safely: "
            f"{'; '.join(names)}. Start threads inside a handler, on first use."
        )
    for descriptor in _open_descriptors() - {control_fd}:
        target = _target(descriptor)
        if target == "anon_inode:[eventpoll]":
            raise Unsafe(
                f"{step} left an event loop (an epoll set) behind, which all children would share. "
                "Make loops inside a handler."
            )
        if target.startswith("socket:") and (peer := _network_peer(descriptor)):
            raise Unsafe(
                f"{step} left a socket open ({peer}), whose stream all children would share. "
                "Connect inside a handler, on first use."
            )


def _network_peer(descriptor: int) -> str | None:
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        try:
            peer: Any = copy.getpeername()
        except OSError:
            peer = "not connected"
        if copy.family in (socket.AF_INET, socket.AF_INET6):
            return f"{copy.family.name}, {peer}"
        # PostgreSQL on this host is reached through a file of this name.
        return str(peer) if ".s.PGSQL." in str(peer) else None


@contextmanager
def _witness_threads() -> Iterator[list[str]]:
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


if __name__ == "__main__":
    main(sys.argv[1:])
