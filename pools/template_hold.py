"""The supervisor's hold on one template process: its pidfd, its control socket, and what it was asked.

The protocol's picture is in `pools.template`. Requests carry numbers, so a reply that comes after its request was
given up belongs to nobody: the child it names finds its gate closed and exits.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pools import process
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
    TemplateFrame,
    packet,
    parse_packet,
)
from pools.options import StartMethod

START_SECONDS = 120.0  # to import everything, on a cold disk
SPAWN_SECONDS = 5.0  # a fork of a template of 1 GB takes 0.1 s; one that does not answer by then is stuck
LEAVE_SECONDS = 2.0  # for one that has closed its control socket, or refused, to exit by itself
STUCK_SECONDS = 5.0  # after SIGKILL: only a process in uninterruptible sleep lives so long, and nothing waits for it

log = logging.getLogger("oomph.ingest")


class TemplateError(RuntimeError):
    """The template does not serve. The message says why, for the person who starts the worker."""


class SpawnFailed(Exception):
    """No child could be made, through no fault of the job."""


@dataclass(eq=False)
class Template:
    """One template process, from its start to its end. Everything here happens on the loop.

    `on_retired()` is called once, as soon as it will serve no more. `gone` says that nobody needs to wait for it: it is
    dead, or it survives SIGKILL and is given up, to be reaped whenever it does end.
    """

    pid: int
    pidfd: int
    control: socket.socket
    on_retired: Callable[[], None]
    first_word: asyncio.Future[Ready]
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    pending: dict[int, asyncio.Future[int]] = field(default_factory=dict)
    births: int = 0
    step: str = ""  # what it loads, while it loads
    killed_because: str = ""
    is_dead: bool = False
    _serves: bool = True
    _timer: asyncio.TimerHandle | None = None

    @classmethod
    def launch(
        cls,
        spec: str,
        method: StartMethod,
        environment: Mapping[str, str],
        mark: int,
        on_retired: Callable[[], None],
    ) -> "Template":
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
        template = cls(pid, pidfd, ours, on_retired, loop.create_future())
        loop.add_reader(ours, template._hear)
        loop.add_reader(pidfd, template._end)
        return template

    async def ready(self) -> Ready:
        """Wait for its first word. Raises `TemplateError`."""
        try:
            async with asyncio.timeout(START_SECONDS):
                return await self.first_word
        except TimeoutError:
            why = f"did not get ready within {START_SECONDS:g} s{self._where()}"
            self.kill(f"it {why}")
            raise TemplateError(f"the template {why}") from None

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
            why = f"did not answer within {SPAWN_SECONDS:g} s"
            if not self.killed_because:
                log.error("the template (pid %d) %s; replacing it", self.pid, why)
            self.kill(f"it {why}")
            raise SpawnFailed(f"the template {why}") from None

    def kill(self, because: str) -> None:
        """SIGKILL it. One that survives even that is given up after a while."""
        if not self.killed_because and not self.gone.is_set():
            self.killed_because = because
            process.send(self.pidfd, signal.SIGKILL)
            self._retire(STUCK_SECONDS, self._give_up)

    async def end(self, patience: float, because: str) -> None:
        """Wait so long for its own end, then kill it. Never waits longer than until it is given up."""
        try:
            async with asyncio.timeout(patience):
                await self.gone.wait()
        except TimeoutError:
            self.kill(because)
            await self.gone.wait()

    def let_go(self) -> None:
        """Hold nothing of it any more, dead or not. Safe to call twice."""
        if not self.is_dead and self.pidfd >= 0:
            log.error("the template (pid %d) survives SIGKILL; leaving it behind", self.pid)
            asyncio.get_running_loop().remove_reader(self.pidfd)
            os.close(self.pidfd)
            self.pidfd = -1

    def _hear(self) -> bool:
        """Take one packet, where there is one; whether another may follow."""
        try:
            data = self.control.recv(MAX_PACKET_BYTES)
            frame = parse_packet(data) if data else None
        except BlockingIOError:
            return False
        except ConnectionResetError:  # it has died and had not read all that we sent; what it sent comes after this
            return True
        except (OSError, ValueError) as error:
            log.error("the template (pid %d) sent what is no frame (%s); replacing it", self.pid, error)
            asyncio.get_running_loop().remove_reader(self.control)
            self.kill("it sent what is no frame")
            return False
        if frame is None:
            asyncio.get_running_loop().remove_reader(self.control)
            # It is about to end, and how it does is worth more than our own SIGKILL.
            if not self.killed_because:
                self._retire(LEAVE_SECONDS, lambda: self.kill("it closed its control socket"))
            return False
        self._take(frame)
        return True

    def _take(self, frame: TemplateFrame) -> None:
        match frame:
            case Loading(step=step):
                self.step = step
            case Ready():
                self.step = ""
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
        was_given_up = self.gone.is_set()
        while not was_given_up and self._hear():
            pass  # what it said last, in however many packets, may not have been read yet
        ending = process.reap(self.pid)
        os.close(self.pidfd)
        self.is_dead = True
        if was_given_up:
            log.warning("the template (pid %d) is gone at last", self.pid)
        else:
            self._leave(
                f"ended before it was ready ({self._how(ending)}){self._where()}", f"ended ({self._how(ending)})"
            )

    def _give_up(self) -> None:
        log.error(
            "the template (pid %d) survives SIGKILL (uninterruptible sleep?); nothing waits for it any more", self.pid
        )
        self._leave(f"survives SIGKILL{self._where()}", "survives SIGKILL")

    def _leave(self, unready: str, unanswered: str) -> None:
        """Let nobody wait for it any more."""
        asyncio.get_running_loop().remove_reader(self.control)
        self.control.close()
        self._retire()
        self.gone.set()
        if not self.first_word.done():
            self.first_word.set_exception(TemplateError(f"the template {unready}"))
        for answer in self.pending.values():
            if not answer.done():
                answer.set_exception(SpawnFailed(f"the template {unanswered}"))
        self.pending.clear()

    def _retire(self, seconds: float = 0, otherwise: Callable[[], None] | None = None) -> None:
        """From now on it serves nobody. Unless it ends within `seconds`, do what else must be done."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if otherwise is None else asyncio.get_running_loop().call_later(seconds, otherwise)
        if self._serves:
            self._serves = False
            self.on_retired()

    def _how(self, ending: process.Ending | None) -> str:
        if self.killed_because:
            return f"killed, because {self.killed_because}"
        if ending is None:
            return "exit status ?"
        code = os.waitstatus_to_exitcode(ending.status)
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def _where(self) -> str:
        return f", while {self.step}" if self.step else ""
