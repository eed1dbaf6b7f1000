"""What the database says, asked once for everybody who looks at the same thing at the same time."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from supervisor.page.reading import PageDatabase
from supervisor.page.view import View

FRESH_SECONDS = 0.4  # below the interval of live views, which must not be given what they were given before

Place = tuple[str, Hashable]


@dataclass(frozen=True, slots=True)
class Look:
    """What was read, `at` that moment by the database's clock."""

    shown: Any
    at: datetime


class Looks:
    """Answers of the last moment, and those that are on their way."""

    def __init__(self, database: PageDatabase) -> None:
        self._database = database
        self._kept: dict[Place, asyncio.Task[Look]] = {}

    async def look(self, view: View[Any], question: Hashable) -> Look:
        """Read, or share what somebody else reads or has just read. Raises `Refused`, `DatabaseUnavailable`."""
        place = (view.path, question)
        reading = self._kept.get(place)
        if reading is None:
            reading = asyncio.create_task(self._read(view, question), name=f"oomph page {view.path}")
            reading.add_done_callback(lambda done: self._keep_for_a_moment(place, done))
            self._kept[place] = reading
        return await asyncio.shield(reading)

    def forget(self) -> None:
        """Something was changed: read anew, whatever was read before."""
        self._kept.clear()

    async def _read(self, view: View[Any], question: Hashable) -> Look:
        async with self._database.look() as session:
            return Look(await view.read(session, question), session.at)

    def _keep_for_a_moment(self, place: Place, reading: asyncio.Task[Look]) -> None:
        """Answers may be megabytes: none is kept beyond its time, and a failure not at all."""
        if reading.cancelled() or reading.exception() is not None:
            self._drop(place, reading)
        else:
            asyncio.get_running_loop().call_later(FRESH_SECONDS, self._drop, place, reading)

    def _drop(self, place: Place, reading: asyncio.Task[Look]) -> None:
        if self._kept.get(place) is reading:
            del self._kept[place]
