"""What a job has still to bring to its recipient, and the note that it did."""

import hashlib
from dataclasses import dataclass
from datetime import datetime

from jobs.database import Database

MAX_SHOWN = 20  # notices in one message; the rest is counted
MAX_BODY_CHARS = 4_000  # of each


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice, as it is sent."""

    id: int
    at: datetime
    severity: str
    subject: str
    body: str
    event: str


@dataclass(frozen=True, slots=True)
class Batch:
    """What goes into one message: the oldest `notices`, of `total`. Never empty."""

    notices: tuple[Notice, ...]
    total: int

    def id_for(self, recipient: str) -> str:
        """The same for every try of this message, and of no other's, also not of another installation's."""
        first = self.notices[0]
        told = f"{first.event}\n{first.at.isoformat()}\n{recipient}"
        return hashlib.sha256(told.encode()).hexdigest()[:32]


class Outbox:
    """The deliveries of jobs, on the worker's own connections."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def waiting(self, job_id: int) -> Batch | None:
        """None where everything is sent already. Raises `DatabaseUnavailable`."""
        rows = await self._database.fetch("notices_of_job", job_id=job_id, characters=MAX_BODY_CHARS, limit=MAX_SHOWN)
        if not rows:
            return None
        return Batch(tuple(Notice(*row[:-1]) for row in rows), rows[0][-1])

    async def sent(self, job_id: int) -> None:
        """Note that all of them are. Raises `DatabaseUnavailable`: they are sent again then, under the same id."""
        await self._database.fetch("notices_sent", job_id=job_id)
