"""Which attempt a line of the log concerns, and a process.

A call that knows the attempt passes `extra=about(job)`. For what a handler logs, and every library below it, it is the
context that knows: a pool sets `subject` where it begins to run an attempt.
"""

from contextvars import ContextVar
from typing import Protocol


class Subject(Protocol):
    """A job, as far as a log tells which."""

    @property
    def id(self) -> int: ...

    @property
    def attempt(self) -> int: ...

    @property
    def trace_context(self) -> str | None: ...


subject: ContextVar[Subject | None] = ContextVar("oomph_subject", default=None)


def about(job: Subject) -> dict[str, int | str | None]:
    """The `extra` of a log call that concerns this attempt."""
    return {"job_id": job.id, "attempt": job.attempt, "trace_context": job.trace_context}


def process_title(kind: str, job_id: int, attempt: int) -> str:
    """What the child of this attempt is called, for who looks for it on its host."""
    return f"oomph: {kind} job {job_id} attempt {attempt}"
