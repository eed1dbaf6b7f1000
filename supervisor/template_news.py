"""Notices of a template that does not come up: written as soon as the database takes them."""

import asyncio
import os
import socket
import uuid
from collections import deque
from typing import NamedTuple

from jobs.database import Database
from jobs.outcome import MAX_MESSAGE_CHARS, clip
from pools.template_changes import TemplateChange, TemplateDown, TemplateUp

MAX_WAITING = 100  # while the database is away


class _Notice(NamedTuple):
    event: str
    severity: str
    subject: str
    body: str


class TemplateNews:
    """Hears of the worker's template on the loop; `run_once` writes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[_Notice] = deque(maxlen=MAX_WAITING)
        self._news = asyncio.Event()

    def hear(self, change: TemplateChange) -> None:
        """Take note. Never blocks."""
        self._waiting.append(_notice(change, f"template:{uuid.uuid4()}"))
        self._news.set()

    async def run_once(self) -> None:
        """Write what waits, or wait for it. Raises `DatabaseUnavailable`; nothing is forgotten then."""
        await self._news.wait()
        while self._waiting:
            await self._database.fetch("notice", **self._waiting[0]._asdict())
            self._waiting.popleft()
        self._news.clear()


def _notice(change: TemplateChange, event: str) -> _Notice:
    """`event` is made only once: a write whose answer was lost is repeated, and changes nothing then."""
    host, pid = socket.gethostname(), os.getpid()
    match change:
        case TemplateDown(failures, why):
            told = f"{failures} failures in a row of the worker with pid {pid}; the last: {why}\nIt goes on trying."
            subject = f"no ingest job can start on {host}: its template does not come up"
            return _Notice(event, "critical", subject, clip(told, MAX_MESSAGE_CHARS))
        case TemplateUp():
            return _Notice(event, "info", f"ingest jobs start again on {host}", f"The worker's pid is {pid}.")
