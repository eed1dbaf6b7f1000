"""What the tables say of one job, and whether it can still come to what a test waits for."""

from dataclasses import dataclass
from typing import Any

import psycopg

SEEN = """
SELECT job.status, job.pool, job.kind, date_part('epoch', job.run_after - clock_timestamp()),
       ARRAY(SELECT past.verdict FROM background_attempts AS past WHERE past.job_id = job.id ORDER BY past.claim),
       concat_ws(': ', job.error ->> 'type', job.error ->> 'message'),
       concat_ws(': ', k.paused_by, k.pause_reason), k.paused_at IS NOT NULL
  FROM background_jobs AS job LEFT JOIN background_kinds AS k ON k.kind = job.kind
 WHERE job.id = %s
"""
OVER = frozenset({"succeeded", "dead", "cancelled"})
STATUSES = OVER | {"queued", "running"}


@dataclass(frozen=True, slots=True)
class Sight:
    """One job in one moment. `due_in` is in seconds, zero or less where it is due."""

    status: str
    pool: str
    kind: str
    due_in: float
    verdicts: list[str]
    error: str
    paused: str
    is_paused: bool

    @property
    def is_over(self) -> bool:
        """Only an operator's retry could change it any more."""
        return self.status in OVER

    @property
    def obstacle(self) -> str:
        """Why no worker may start it now; empty where any may."""
        if self.is_paused:
            return f"its kind {self.kind} is paused by {self.paused}"
        return f"it is due in {self.due_in:.1f} s" if self.due_in > 0 else ""

    def has(self, what: str) -> bool:
        """Whether this is its status, or the verdict of one of its attempts."""
        return self.status == what if what in STATUSES else what in self.verdicts

    def __str__(self) -> str:
        text = f"it is {self.status} with {self.verdicts}"
        if self.status == "queued" and self.obstacle:
            text += f"; {self.obstacle}"
        return f"{text}; its error: {self.error}" if self.error else text


def see(db: psycopg.Connection[tuple[Any, ...]], job_id: int) -> Sight:
    """The job now, in one snapshot. Raises `AssertionError` where there is none."""
    row = db.execute(SEEN, [job_id]).fetchone()
    if row is None:
        raise AssertionError(f"job {job_id} does not exist")
    return Sight(*row)
