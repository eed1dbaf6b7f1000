"""Stub workers: real connections and the real claim, no handlers. Fifty of them fit where fifty workers would not.

A stub holds what a worker holds on the server (a session that works and one that listens), has a lease, polls, and
comes when it is notified. It leaves out what a worker does in its own process.
"""

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import psycopg

from bench.workers.oomph_app import NOOP, noop
from jobs.app import App, Handler
from jobs.claim import Wanted
from jobs.database import Database
from jobs.store import JobStore

LEASE = timedelta(minutes=10)
POLL_SECONDS = 1.0
CHANNEL = "background_jobs"
TIMEOUT_SECONDS = 30.0


@dataclass
class Herd:
    """What the stubs saw of one notification."""

    claims: int = 0
    taken: int = 0
    first_at: float = 0.0  # when the job was taken
    last_at: float = 0.0  # when the last stub had been answered


class Stub:
    """One of them."""

    def __init__(self, url: str, herd: Herd) -> None:
        self._url, self._herd = url, herd
        self._database = Database(url, call_timeout=TIMEOUT_SECONDS, application_name="bench stub")
        self._store = JobStore(self._database, retry_delay=1, pause_after=5)
        self._id = uuid.uuid4()
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self._database.open()
        await self._store.register(
            self._id,
            host="stub",
            pid=os.getpid(),
            version="bench",
            pools=[str(NOOP.pool)],
            app=App([Handler(NOOP, noop)]),
            lease=LEASE,
        )
        self._ears = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        await self._ears.execute(f"LISTEN {CHANNEL}".encode())
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._claim())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._ears.close()
        await self._database.close()

    async def _listen(self) -> None:
        async for _ in self._ears.notifies():
            self._news.set()

    async def _claim(self) -> None:
        while True:
            woken = self._news.is_set()
            self._news.clear()
            claim = await self._store.claim(Wanted(self._id, str(NOOP.pool), [NOOP.kind], 1))
            now = time.monotonic()
            if woken:
                self._herd.claims += 1
                self._herd.last_at = now
            if claim.jobs:
                self._herd.taken += len(claim.jobs)
                self._herd.first_at = now
                await self._store.complete({job.fence: None for job in claim.jobs})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._news.wait()


@contextlib.asynccontextmanager
async def stubs(url: str, number: int, herd: Herd) -> AsyncIterator[None]:
    """So many stubs that wait."""
    all_of_them = [Stub(url, herd) for _ in range(number)]
    try:
        for stub in all_of_them:
            await stub.start()
        yield
    finally:
        for stub in all_of_them:
            await stub.stop()
