"""The supervisor's side of the template: starts it, keeps one alive, and asks it for children.

The protocol's picture is in `pools.template`. Requests carry numbers, so a reply that comes after its request was
given up belongs to nobody: the child it names finds its gate closed and exits.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pools import process
from pools.frames import (
    MAX_PACKET_BYTES,
    NotSpawned,
    Ping,
    Pong,
    Ready,
    Refused,
    Spawn,
    Spawned,
    TemplateFrame,
    packet,
    parse_packet,
)
from pools.options import StartMethod

TEMPLATE_ENVIRONMENT = {
    # A BLAS or OpenMP pool of one thread per core would not survive the fork; a job may raise these for itself.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "OMP_STACKSIZE": "2M",  # of each thread of an OpenMP pool, all of which counts against the limit
    "MALLOC_ARENA_MAX": "2",  # each further arena of malloc reserves 64 MiB, which counts against RLIMIT_DATA
    "PYTHONUNBUFFERED": "1",  # what a job printed before a SIGKILL has reached the pipe
}

START_SECONDS = 120.0  # to import everything, on a cold disk
SPAWN_SECONDS = 5.0  # a fork of a template of 1 GB takes 0.1 s; one that does not answer by then is stuck
PING_SECONDS = (
    5.0  # between two pings of an idle template: one that was stopped or hangs is found before a job needs it
)
WAIT_SECONDS = 10.0  # for a template to be there at all; then the job goes back to the queue, for any worker
HEALTHY_SECONDS = 60.0  # one that lived so long has not failed to start
HEALTHY_BIRTHS = 10  # nor one that made so many children, whatever ended it then
MAX_BACKOFF_SECONDS = 60.0

log = logging.getLogger("oomph.ingest")


class TemplateError(RuntimeError):
    """The template does not serve. The message says why, for the person who starts the worker."""


class SpawnFailed(Exception):
    """No child could be made, through no fault of the job."""


@dataclass(eq=False)
class Template:
    """One template process, from its start to its end. Everything here happens on the loop."""

    pid: int
    pidfd: int
    control: socket.socket
    first_word: asyncio.Future[Ready]
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    pending: dict[int, asyncio.Future[int]] = field(default_factory=dict)
    births: int = 0

    @classmethod
    def launch(cls, spec: str, method: StartMethod, environment: Mapping[str, str], mark: int) -> "Template":
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                # -P: the working folder is not on the path yet, so nothing in it can stand in for our own modules.
                arguments = [sys.executable, "-P", "-m", "pools.template", spec, method]
                arguments += [str(theirs.fileno()), str(os.getpid()), str(mark)]
                pid = process.start_program(arguments, environment, theirs.fileno())
            pidfd = os.pidfd_open(pid)
        except OSError:
            ours.close()  # at its end of file the template, if there is one, exits
            raise
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        template = cls(pid, pidfd, ours, loop.create_future())
        loop.add_reader(ours, template._hear)
        loop.add_reader(pidfd, template._end)
        return template

    async def ready(self) -> Ready:
        """Wait for its first word. Raises `TemplateError`."""
        try:
            async with asyncio.timeout(START_SECONDS):
                return await self.first_word
        except TimeoutError:
            self.kill()
            raise TemplateError(f"the template did not get ready within {START_SECONDS:g} s") from None

    async def spawn(self, request: Spawn, job_fd: int, output_fd: int) -> int:
        """The pid of a new child, which is ours and waits at its gate. Raises `SpawnFailed`."""
        try:
            socket.send_fds(self.control, [packet(request)], [job_fd, output_fd])
        except OSError as error:
            raise SpawnFailed(f"the template takes no request: {error.strerror}") from error
        return await self._answer(request.sequence)

    async def ping(self, sequence: int) -> None:
        """Return when it has answered. Raises `SpawnFailed`; one that does not answer is killed."""
        try:
            self.control.send(packet(Ping(sequence=sequence)))
        except OSError as error:
            raise SpawnFailed(f"the template takes no ping: {error.strerror}") from error
        await self._answer(sequence)

    async def _answer(self, sequence: int) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.pending[sequence] = answer
        try:
            async with asyncio.timeout(SPAWN_SECONDS):
                return await answer
        except TimeoutError:
            log.error("the template (pid %d) did not answer within %g s; replacing it", self.pid, SPAWN_SECONDS)
            self.kill()
            raise SpawnFailed(f"the template did not answer within {SPAWN_SECONDS:g} s") from None

    def kill(self) -> None:
        if not self.gone.is_set():
            process.send(self.pidfd, signal.SIGKILL)

    def _hear(self) -> None:
        try:
            data = self.control.recv(MAX_PACKET_BYTES)
            frame = parse_packet(data) if data else None
        except BlockingIOError:
            return
        except (OSError, ValueError) as error:
            log.error("the template (pid %d) sent what is no frame (%s); replacing it", self.pid, error)
            frame = None
        if frame is None:
            asyncio.get_running_loop().remove_reader(self.control)
            self.kill()
        else:
            self._take(frame)

    def _take(self, frame: TemplateFrame) -> None:
        match frame:
            case Ready():
                if not self.first_word.done():
                    self.first_word.set_result(frame)
            case Refused(why=why):
                if not self.first_word.done():
                    self.first_word.set_exception(TemplateError(why))
            case Spawned(sequence=sequence, pid=pid):
                answer = self.pending.pop(sequence, None)
                if answer is not None and not answer.done():
                    self.births += 1
                    answer.set_result(pid)
            case Pong(sequence=sequence):
                answer = self.pending.pop(sequence, None)
                if answer is not None and not answer.done():
                    answer.set_result(self.pid)
            case NotSpawned(sequence=sequence, why=why):
                answer = self.pending.pop(sequence, None)
                if answer is not None and not answer.done():
                    answer.set_exception(SpawnFailed(why))

    def _end(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.pidfd)
        self._hear()  # what it said last may not have been read yet
        loop.remove_reader(self.control)
        ending = process.reap(self.pid)
        os.close(self.pidfd)
        self.control.close()
        self.gone.set()
        how = "?" if ending is None else os.waitstatus_to_exitcode(ending.status)
        if not self.first_word.done():
            self.first_word.set_exception(TemplateError(f"the template ended before it was ready (exit status {how})"))
        for answer in self.pending.values():
            if not answer.done():
                answer.set_exception(SpawnFailed(f"the template ended (exit status {how})"))
        self.pending.clear()


class Spawner:
    """Keeps one template alive. Children do not notice when it is replaced."""

    def __init__(self, spec: str, environment: Mapping[str, str], mark: int, method: StartMethod) -> None:
        self._spec = spec
        self._environment = {**TEMPLATE_ENVIRONMENT, **environment}
        self._mark = mark
        self._method = method
        self.ready: Ready | None = None
        self._template: Template | None = None
        self._up = asyncio.Event()
        self._sequence = 0
        self._keeper: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        return self._up.is_set()

    @property
    def pid(self) -> int | None:
        return self._template.pid if self._template is not None and not self._template.gone.is_set() else None

    @property
    def is_busy(self) -> bool:
        """A child may exist whose pid we have not been told yet."""
        return self._template is not None and bool(self._template.pending)

    async def start(self) -> None:
        """Start the first template. Raises `TemplateError` where it refuses or dies."""
        template = await self._launch()
        self._keeper = asyncio.create_task(self._keep(template), name="oomph template keeper")

    async def spawn(self, mark: int, job_fd: int, output_fd: int) -> int:
        """The pid of a new child at its gate. Raises `SpawnFailed`."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._up.wait()
        except TimeoutError:
            raise SpawnFailed(f"there was no template for {WAIT_SECONDS:g} s") from None
        assert self._template is not None
        self._sequence += 1
        return await self._template.spawn(Spawn(sequence=self._sequence, mark=mark), job_fd, output_fd)

    async def stop(self) -> None:
        """End the template and stop keeping one."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._up.clear()
        if self._template is not None:
            self._template.kill()
            await self._template.gone.wait()

    async def _launch(self) -> Template:
        try:
            template = Template.launch(self._spec, self._method, self._environment, self._mark)
        except OSError as error:
            raise TemplateError(f"the template could not be started: {error.strerror}") from error
        self._template = template
        try:
            self.ready = await template.ready()
        except TemplateError:
            await template.gone.wait()
            raise
        except asyncio.CancelledError:
            template.kill()
            raise
        self._up.set()
        log.info("template up: pid %d, %.0f MB", template.pid, self.ready.rss_mb)
        return template

    async def _until_gone(self, template: Template) -> None:
        """Wait for the template's end, and bring it about where it does not answer while nobody asks it for a child."""
        while not template.gone.is_set():
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await template.gone.wait()
            except TimeoutError:
                if not template.pending:
                    self._sequence += 1
                    with suppress(SpawnFailed):
                        await template.ping(self._sequence)

    async def _keep(self, template: Template | None) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            started = loop.time()
            if template is not None:
                await self._until_gone(template)
                self._up.clear()
            births = 0 if template is None else template.births
            was_healthy = births >= HEALTHY_BIRTHS or loop.time() - started > HEALTHY_SECONDS
            failures = 1 if was_healthy else failures + 1
            delay = backoff_seconds(failures)
            if template is not None:
                log.error("the template (pid %d) ended; starting another in %g s", template.pid, delay)
            await asyncio.sleep(delay)
            try:
                template = await self._launch()
            except TemplateError as error:
                template = None
                log.error("no template, so no ingest job can start here: %s", error)
            except Exception:  # whatever it is, the next try may succeed, and without a keeper none would come
                template = None
                log.exception("no template, so no ingest job can start here")


def backoff_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row: the first one costs nothing, then 1, 2, 4 ... 60 seconds."""
    return 0.0 if failures <= 1 else min(MAX_BACKOFF_SECONDS, 2.0 ** min(failures - 2, 10))
