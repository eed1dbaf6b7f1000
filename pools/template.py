"""The template: an exec'ed process with one thread that has everything imported, and only forks.

    supervisor                        template              child
        |  posix_spawn ------------------>|  load, check, freeze
        |<------- Loading, Ready/Refused --|
        |  Spawn + job socket, pipe ----->|  clone ----------->|  setsid, ... gate
        |<------------------- Spawned(pid)|                    |
        |  pidfd_open(pid), JobFrame ------------------------->|  runs the job

A child is the supervisor's own before its pid is reported (see `pools.forking`). So the supervisor gets a real exit
status of every child, and the template may die or be replaced at any time without a child noticing.

What makes a fork safe here is what the template does not have: see `pools.fork_safety`. It checks this after every
import and refuses to serve otherwise. It dies with the supervisor: by parent-death signal, and by end of file.

With the start method `exec` it loads nothing, and the child executes a fresh interpreter (`pools.fresh`): for code that
starts threads or opens connections when it is imported.
"""

import gc
import os
import socket
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

from setproctitle import setproctitle

from jobs.app import App
from jobs.failpoints import Failpoint, failpoint
from jobs.loading import AppError, import_module, load_app
from jobs.outcome import MAX_MESSAGE_CHARS, clip
from jobs.task import Pool
from pools import child, huge_pages, process
from pools.errors import describe
from pools.fork_safety import Unsafe, check_fork_safety, open_descriptors, witness_threads
from pools.forking import Forker
from pools.frames import (
    MAX_PACKET_BYTES,
    Loading,
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

T = TypeVar("T")


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
        born = partial(_execute, spec) if method == StartMethod.EXEC else partial(_live, _load(spec, control))
    except (AppError, Unsafe) as error:
        _refuse(control, str(error))
    gc.collect()
    gc.disable()
    gc.freeze()  # a collection in a child would otherwise write to, and so copy, every page that holds an object
    huge_pages.collapse()
    fork = Forker()
    sizes = parse_sizes(Path("/proc/self/status").read_text())
    control.send(
        packet(
            Ready(
                data_mb=sizes["VmData"] / 1024,
                rss_mb=sizes["VmRSS"] / 1024,
                forks_twice=fork.why_twice,
            )
        )
    )
    _serve(control, fork, born)


def _live(app: App, spawn: Spawn, descriptors: list[int], kept: set[int]) -> NoReturn:
    job_fd, output_fd = descriptors
    child.live(app, job_fd, output_fd, spawn.mark, kept)


def _execute(spec: str, spawn: Spawn, descriptors: list[int], kept: set[int]) -> NoReturn:
    job_fd, output_fd = descriptors
    child.detach(job_fd, output_fd, spawn.mark, kept)
    os.set_inheritable(job_fd, True)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "pools.fresh", spec, str(job_fd)])  # noqa: S606


def _load(spec: str, control: socket.socket) -> App:
    with witness_threads() as started:

        def loaded(step: str, load: Callable[[], T]) -> T:
            # Before it begins: a module that ends this process can be named by nobody else.
            control.send(packet(Loading(step=clip(step, MAX_MESSAGE_CHARS))))
            try:
                found = load()
            except AppError:
                raise
            except BaseException as error:
                raise Unsafe(f"{step} raised {_told(error)}") from error
            check_fork_safety(step, control.fileno(), started)
            return found

        app = loaded(f"loading {spec}", lambda: load_app(spec))
        for name in app.preload:
            loaded(f"preloading {name}", partial(import_module, name, f"preload of {name}"))
    if any(app.handlers[kind].is_async for kind in app.kinds(Pool.INGEST)):
        import asyncio  # noqa: F401  (once here, and not in every child)
    child.warm_up()
    return app


def _told(error: BaseException) -> str:
    told, frames = describe(error), traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{told.type}{where}: {told.message}"


def _refuse(control: socket.socket, why: str) -> NoReturn:
    try:
        control.send(packet(Refused(why=clip(why, MAX_MESSAGE_CHARS))))
    except OSError as error:  # what was loaded has closed it
        print(f"the template refuses to serve: {why} ({error})", file=sys.stderr)
    finally:
        os._exit(1)  # `sys.exit` would wait for the very threads that are refused


def _serve(control: socket.socket, fork: Forker, born: Callable[[Spawn, list[int], set[int]], NoReturn]) -> NoReturn:
    kept = open_descriptors() - {control.fileno()}  # files that a preloaded module holds open stay open in a child
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, MAX_PACKET_BYTES, 2)
        if not request:
            os._exit(0)  # the supervisor has gone
        reply: Spawned | NotSpawned | Pong
        match parse_request(request):
            case Ping(sequence=sequence):
                reply = Pong(sequence=sequence)
            case Spawn(sequence=sequence) as spawn:
                _flush()
                try:
                    reply = Spawned(sequence=sequence, pid=fork(partial(born, spawn, descriptors, kept)))
                    failpoint(Failpoint.SPAWNED)
                except OSError as error:
                    reply = NotSpawned(sequence=sequence, why=f"fork: {error.strerror}")
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(packet(reply))


def _flush() -> None:
    """What a child inherits unwritten would be written twice."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # both may have been closed when the worker was started
            stream.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
