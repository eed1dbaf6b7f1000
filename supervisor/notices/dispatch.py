"""Makes the jobs that bring notices: for each recipient one at a time, of all that is new to them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from jobs.database import Database
from jobs.task import Payload, Task

LOOK_SECONDS = 1.0
NEWEST = 1_000  # notices that a look goes through: some ms
# What lies before them, because a flood went over it or a transaction was late to commit, is found by every such look.
THOROUGH_LOOK = 300
NEWEST_THOROUGH = 100_000

log = logging.getLogger("oomph.notices")


@dataclass(frozen=True, slots=True)
class Addressee:
    """Who is told, by which channel, and the job that does it."""

    channel: str
    recipient: str
    task: Task[Any]
    payload: Payload


class Dispatcher:
    """Any number of workers may run one. After a message to somebody, what comes within `digest` waits for the next."""

    def __init__(self, database: Database, addressees: Sequence[Addressee], digest: timedelta) -> None:
        self._database = database
        self._addressees = {(each.channel, each.recipient): each for each in addressees}
        self._digest = digest
        self._looks = 0

    async def run_once(self) -> float:
        """One look. Returns the seconds until the next; raises `DatabaseUnavailable`."""
        channels, recipients = zip(*self._addressees, strict=True)
        rows = await self._database.fetch(
            "undelivered_notices",
            channels=list(channels),
            recipients=list(recipients),
            digest=self._digest,
            newest=NEWEST_THOROUGH if self._looks % THOROUGH_LOOK == 0 else NEWEST,
        )
        self._looks += 1
        for channel, recipient in rows:
            await self._dispatch(self._addressees[channel, recipient])
        return LOOK_SECONDS

    async def _dispatch(self, to: Addressee) -> None:
        async with self._database.transaction() as session:
            held = await session.fetch("hold_recipient", channel=to.channel, recipient=to.recipient)
            if held[0][0]:
                await session.fetch(
                    "dispatch_notices",
                    channel=to.channel,
                    recipient=to.recipient,
                    digest=self._digest,
                    kind=to.task.kind,
                    pool=str(to.task.pool),
                    priority=int(to.task.priority),
                    max_attempts=to.task.max_attempts,
                    timeout=to.task.timeout,
                    payload=to.payload.model_dump_json(),
                )
