"""The claims of one worker with everything that they use, but without what wakes them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from jobs import App, Handler, JobContext, Pool, Task
from jobs.database import Database
from jobs.recovery import Recovery
from jobs.store import JobStore
from pools.loop import LoopPool
from supervisor.attempts import Attempts
from supervisor.claiming.claims import Claims
from supervisor.outcomes import OutcomeWriter
from tests.jobs.lab import NOTE, Note, hire, until


@dataclass
class Desk:
    """One worker, with ten slots a pool unless told otherwise, who knows notes, or what else it is told.

    `during(job_id)` is called by each handler.
    """

    claims: Claims
    attempts: Attempts
    store: JobStore
    ran: list[int] = field(default_factory=list)
    during: Callable[[int], Awaitable[None]] | None = None

    async def take(self) -> list[int]:
        """What the next claims run, until there is no reason for another; there must be one."""
        before = len(self.ran)
        async with asyncio.timeout(10):
            await self.claims.claim_once(Pool.SYSTEM)
        await until(lambda: self.attempts.count == 0)
        return self.ran[before:]

    async def claim(self) -> list[int]:
        """`take` for no other reason than this call."""
        self.claims.wake(Pool.SYSTEM)
        return await self.take()


@asynccontextmanager
async def open_desk(
    database: Database, store: JobStore, slots: int = 10, *, tasks: Sequence[Task[Note]] = (NOTE,)
) -> AsyncIterator[Desk]:
    """A note whose text is `fail once` fails once."""

    async def note(payload: Note, context: JobContext) -> None:
        found.ran.append(context.job_id)
        if found.during is not None:
            await found.during(context.job_id)
        if payload.text == "fail once" and context.attempt == 1:
            raise RuntimeError(payload.text)

    pools = {task.pool: LoopPool() for task in tasks}
    worker = await hire(store, tasks=tasks)
    app = App([Handler(task, note) for task in tasks])
    outcomes = OutcomeWriter(store, along=lambda jobs: found.claims.along(jobs))
    attempts = Attempts(
        app,
        store,
        outcomes,
        pools,
        dict.fromkeys(pools, slots),
        lambda pool, gone: found.claims.slot_freed(pool, gone),
    )
    claims = Claims(
        worker.id,
        app,
        list(pools),
        store,
        Recovery(database, store, unknown_kind_grace=timedelta(0)),
        attempts,
        trusted=lambda: True,
        may_claim=lambda: True,
        ready=lambda pool: True,
        poll=1.0,
    )
    found = Desk(claims, attempts, store)
    writing = asyncio.create_task(outcomes.run())
    yield found
    writing.cancel()
