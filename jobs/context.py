"""The `JobContext` that a handler is given, in a loop pool and in a child alike."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from jobs.connection import Program, Statement, run
from jobs.outcome import ESCAPED_NUL, MAX_RESULT_BYTES
from jobs.redaction import PLAIN, Redactor
from jobs.sql import statement


class LeaseLost(Exception):
    """The job no longer belongs to this worker: whatever its handler writes now must be rolled back."""


class BoundContext:
    """Implements `JobContext` for one claim of one job.

    `publish` takes `(fraction, note)` and never blocks. `completed_in` tells whether the handler called
    `complete_in`; whether its transaction committed is for the supervisor to check. `redactor` knows the job's secrets.
    """

    def __init__(
        self,
        job_id: int,
        claim: int,
        attempt: int,
        organization_id: str | None,
        deadline: datetime,
        publish: Callable[[float, str], None],
        redactor: Redactor = PLAIN,
    ) -> None:
        self.job_id = job_id
        self.claim = claim
        self.attempt = attempt
        self.organization_id = organization_id
        self.deadline = deadline
        self.completed_in = False
        self._publish = publish
        self._redactor = redactor

    def progress(self, fraction: float, note: str = "") -> None:
        """Publish 0.0 to 1.0 (others are clamped) and a note of at most 200 characters."""
        note = self._redactor.text(note)[:200]
        # In this order, because no comparison with NaN holds: it becomes 0.0.
        self._publish(max(0.0, min(1.0, float(fraction))) if fraction == fraction else 0.0, note)

    def complete_in(self, connection: Any, result: BaseModel | None = None) -> Any:
        """Finish the job in the transaction that `connection` has open; see `JobContext.complete_in`."""
        return run(connection, self._complete(result_json(result, self._redactor)))

    def _complete(self, result: str | None) -> Program[None]:
        rows = yield Statement(
            statement("complete"), {"ids": [self.job_id], "claims": [self.claim], "results": [result]}
        )
        if not rows:
            raise LeaseLost(f"job {self.job_id} no longer belongs to claim {self.claim}")
        self.completed_in = True


def result_json(result: object, redactor: Redactor = PLAIN) -> str | None:
    """A handler's return value as it is stored, without the job's secrets.

    Raises `TypeError` for anything but a pydantic model or None and `ValueError` over 1 MiB.
    """
    if result is None:
        return None
    if not isinstance(result, BaseModel):
        raise TypeError(f"a handler returns a pydantic model or None, not {type(result).__name__}")
    text = redactor.json(ESCAPED_NUL.sub(r"\1\\u2400", result.model_dump_json()))
    if len(text.encode()) > MAX_RESULT_BYTES:
        raise ValueError(f"the result has {len(text.encode()):,} bytes, {MAX_RESULT_BYTES:,} are allowed")
    return text
