"""What the database says, asked once for everybody who looks at the same thing at the same time."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from supervisor.page.reading import PageDatabase

if TYPE_CHECKING:
    from supervisor.page.desk import View

FRESH_SECONDS = 0.4  # below the interval of live views, which must not be given what they were given before
MAX_KEPT = 64

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
        self._kept: OrderedDict[Place, tuple[float, asyncio.Task[Look]]] = OrderedDict()

    async def look(self, view: "View[Any]", question: Hashable) -> Look:
        """Read, or share what somebody else reads or has just read. Raises `Refused`, `DatabaseUnavailable`."""
        place = (view.path, question)
        began, reading = self._kept.get(place, (0.0, None))
        if reading is None or (reading.done() and (time.monotonic() - began > FRESH_SECONDS or _failed(reading))):
            reading = asyncio.create_task(self._read(view, question), name=f"oomph page {view.path}")
            reading.add_done_callback(_failed)  # somebody looked at what it raised, also where everybody has left
            self._kept[place] = (time.monotonic(), reading)
            self._kept.move_to_end(place)
            self._forget_old()
        return await asyncio.shield(reading)

    def forget(self) -> None:
        """Something was changed: read anew, whatever was read before."""
        self._kept.clear()

    async def _read(self, view: "View[Any]", question: Hashable) -> Look:
        async with self._database.look() as session:
            return Look(await view.read(session, question), session.at)

    def _forget_old(self) -> None:
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)


def _failed(reading: asyncio.Task[Look]) -> bool:
    return reading.cancelled() or reading.exception() is not None
