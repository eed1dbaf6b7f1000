"""One attempt while it runs: the job that was claimed, and our intent if we end it.

The intent is recorded before any signal is sent or any coroutine is cancelled, and the first one wins: it is the
strongest evidence that a verdict can have.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from jobs.app import Handler
from jobs.outcome import AttemptReport
from jobs.store import ClaimedJob


class Intent(StrEnum):
    """Why we ended an attempt."""

    DEADLINE = "deadline"
    MEMORY = "memory"
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"
    LEASE_LOST = "lease_lost"
    PROCESSES = "processes"
    SCRATCH = "scratch"


@dataclass(eq=False)
class Execution:
    """One attempt of one job, from its claim to its report.

    `publish` takes `(fraction, note)` from the handler's progress calls; it never blocks. `lingering` is set by a pool
    that could not end what it ran: the attempt is reported, its slot stays closed until that future is done.
    """

    job: ClaimedJob
    handler: Handler
    publish: Callable[[float, str], None]
    intent: Intent | None = None
    lingering: asyncio.Future[Any] | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self, intent: Intent) -> None:
        """Ask the pool to end this attempt. The first intent stays; later calls change nothing."""
        if self.intent is None:
            self.intent = intent
            self._stopping.set()

    async def stopping(self) -> Intent:
        """Wait until somebody asked for the end; return why."""
        await self._stopping.wait()
        assert self.intent is not None
        return self.intent


class JobPool(Protocol):
    """Where attempts run. `run` never raises for what a job does: it always returns a report."""

    async def start(self) -> None: ...

    async def run(self, execution: Execution) -> AttemptReport: ...

    async def stop(self) -> None: ...
