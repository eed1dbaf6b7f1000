"""One attempt while it runs: the job that was claimed, and our intent if we end it.

The intent is recorded before any signal is sent or any coroutine is cancelled, and the first one wins: it is the
strongest evidence that a verdict can have.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

from jobs.app import Handler
from jobs.claim import ClaimedJob
from jobs.outcome import AttemptReport
from jobs.redaction import redactor


class Intent(StrEnum):
    """Why we ended an attempt."""

    DEADLINE = "deadline"
    MEMORY = "memory"
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"
    LEASE_LOST = "lease_lost"
    PAUSED = "paused"  # before it had started; what runs finishes
    UNSTARTED = "unstarted"  # its child took the job and does nothing
    PROCESSES = "processes"
    SCRATCH = "scratch"


Report = Callable[[AttemptReport], None]
Progress = Callable[["Execution", float, str], None]


class Span(Protocol):
    """An attempt as a trace shows it."""

    def enter(self) -> None:
        """What the current task or thread does from now on belongs to it."""

    def end(self, report: AttemptReport) -> None: ...


class Execution:
    """One attempt of one job, from its claim to its report. `redactor` knows the job's secrets.

    `progress` is called with the execution, a fraction and a note. `waits` is true while a pool keeps it waiting for
    what it needs: nothing of the job has started. `lingering` is set by a pool that could not end what it ran: the
    attempt is reported, its slot stays closed until that future is done. `span` is None where nobody traces.
    """

    __slots__ = (
        *("_on_stop", "_progress", "_stopping", "handler", "intent", "job", "lingering", "redactor", "span", "waits"),
    )

    def __init__(self, job: ClaimedJob, handler: Handler[Any], progress: "Progress", span: Span | None = None) -> None:
        self.job = job
        self.handler = handler
        self.redactor = redactor(job.payload, handler.secret_paths)
        self._progress = progress
        self.span = span
        self.intent: Intent | None = None
        self.waits = False
        self.lingering: asyncio.Future[Any] | None = None
        self._on_stop: Callable[[], None] | None = None
        self._stopping: asyncio.Event | None = None

    def publish(self, fraction: float, note: str) -> None:
        """Take the handler's progress; never blocks."""
        self._progress(self, fraction, note)

    def on_stop(self, end: Callable[[], None]) -> None:
        """Call `end` once somebody has asked for the end; at once, if that has happened."""
        self._on_stop = end
        if self.intent is not None:
            end()

    def stop(self, intent: Intent) -> None:
        """Ask the pool to end this attempt. The first intent stays; later calls change nothing."""
        if self.intent is None:
            self.intent = intent
            if self._stopping is not None:
                self._stopping.set()
            if self._on_stop is not None:
                self._on_stop()

    async def stopping(self) -> Intent:
        """Wait until somebody asked for the end; return why."""
        if self._stopping is None:
            self._stopping = asyncio.Event()
        if self.intent is None:
            await self._stopping.wait()
        assert self.intent is not None
        return self.intent


class JobPool(Protocol):
    """Where attempts run."""

    async def start(self) -> None: ...

    def begin(self, execution: Execution, report: Report) -> None:
        """Run one attempt; call `report` once, on the loop, when it has ended. Whatever a job does is a report."""

    def expect_more(self) -> None:
        """Jobs will come as soon as slots are free: prepare what the next one needs, if that takes time."""

    async def stop(self) -> None: ...
