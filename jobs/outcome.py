"""How an attempt ended: the verdicts and the closed set of outcomes.

Plain values without a clock, a socket or a database. A pool produces an `AttemptReport`; the store writes it once,
behind the job's fence.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

MAX_TYPE_CHARS = 200  # of an exception's name
MAX_MESSAGE_CHARS = 4_000  # of an error message; the row stays readable in a list
MAX_FRAMES_CHARS = 16_000  # of a stack: some thirty frames with their source lines
MAX_OUTPUT_TAIL_BYTES = 64 << 10
MAX_RESULT_BYTES = 1 << 20

# NUL in JSON text, after any number of escaped backslashes. Not `\\\\u0000`: that is a backslash and the word u0000.
ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


class Verdict(StrEnum):
    """How an attempt ended. What it costs stands in the three sets below."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    MEMORY_EXCEEDED = "memory_exceeded"
    OOM_KILLED = "oom_killed"
    KILLED = "killed"
    CRASHED = "crashed"
    EXITED = "exited"
    VANISHED = "vanished"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    WORKER_LOST = "worker_lost"
    RELEASED = "released"
    LEASE_LOST = "lease_lost"
    SPAWN_FAILED = "spawn_failed"
    SNOOZED = "snoozed"

    @property
    def is_kill(self) -> bool:
        """The job took its process down: the kind's streak grows."""
        return self in _KILLS

    @property
    def ends_streak(self) -> bool:
        """The job's process outlived the job, so the kind does not kill."""
        return self in _SURVIVED

    @property
    def is_charged(self) -> bool:
        """The attempt stays spent. Everything else gives it back."""
        return self not in _REFUNDED


_KILLS = frozenset(
    {
        Verdict.MEMORY_EXCEEDED,
        Verdict.OOM_KILLED,
        Verdict.KILLED,
        Verdict.CRASHED,
        Verdict.EXITED,
        Verdict.VANISHED,
        Verdict.WORKER_LOST,
    }
)
_SURVIVED = frozenset({Verdict.SUCCEEDED, Verdict.FAILED})
_REFUNDED = frozenset({Verdict.RELEASED, Verdict.LEASE_LOST, Verdict.SPAWN_FAILED, Verdict.SNOOZED})


@dataclass(frozen=True, slots=True)
class JobError:
    """An error as it is stored: the exception's type, its message, and where it stood, each bounded."""

    type: str
    message: str
    frames: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", clip(self.type, MAX_TYPE_CHARS))
        object.__setattr__(self, "message", clip(self.message, MAX_MESSAGE_CHARS))
        object.__setattr__(self, "frames", clip(self.frames, MAX_FRAMES_CHARS))


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned. `result` is JSON text or nothing.

    `completed_in` says that the handler finished the job inside its own transaction: the row is only checked.
    """

    result: str | None = None
    completed_in: bool = False
    verdict = Verdict.SUCCEEDED


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised. A permanent failure is dead at once."""

    error: JobError
    permanent: bool = False
    verdict = Verdict.FAILED


@dataclass(frozen=True, slots=True)
class Died:
    """The attempt did not end by its own word: killed, crashed, over its memory or its time."""

    verdict: Verdict
    error: JobError

    def __post_init__(self) -> None:
        if not (self.verdict.is_kill or self.verdict is Verdict.TIMED_OUT):
            raise ValueError(f"{self.verdict} is not a death")


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to run again after `delay`."""

    delay: timedelta
    verdict = Verdict.SNOOZED


@dataclass(frozen=True, slots=True)
class Cancelled:
    """An operator's cancel reached the job."""

    verdict = Verdict.CANCELLED


@dataclass(frozen=True, slots=True)
class Returned:
    """Back in the queue through no fault of the job: `released`, `lease_lost` or `spawn_failed`."""

    verdict: Verdict
    why: str
    delay: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        if self.verdict.is_charged:
            raise ValueError(f"{self.verdict} is charged; only refunds are returned")


Outcome = Succeeded | Failed | Died | Snoozed | Cancelled | Returned


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """What is known of the process that ran an attempt. Memory in MiB, processor time in seconds."""

    pid: int | None = None
    signal: str | None = None
    exit_code: int | None = None
    peak_memory_mb: float | None = None
    memory_limit_mb: int | None = None
    cpu_seconds: float | None = None
    output_tail: str = ""


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """One attempt's end with its evidence: what the store writes, once.

    `evidence` is a flat JSON object. Its keys `certainty` (certain, likely, unknown) and `why` are for people.
    A success without evidence leaves no row in `background_attempts`.
    """

    outcome: Outcome
    evidence: Mapping[str, Any] = field(default_factory=dict)
    process: ProcessFacts = field(default_factory=ProcessFacts)


def storable(text: str) -> str:
    """`text` without what PostgreSQL refuses: NUL, and halves of surrogate pairs."""
    return text.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode("utf-8")


def clip(text: str, limit: int) -> str:
    """`text` as it can be stored, its middle cut out where it is over `limit` characters."""
    text = storable(text)
    if len(text) <= limit:
        return text
    half = (limit - 40) // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"
