"""What a declaration needs: `Task`, `Payload`, `Pool`, `Priority`, and the two exceptions a handler may raise.

A service imports this module to enqueue and never imports the work. Nothing here knows a database.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum, StrEnum
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from jobs.secret_fields import secret_paths

MAX_KIND_LENGTH = 100  # a kind is a label in logs, metrics and process titles, not a sentence
MAX_KEY_LENGTH = 500  # keys stand in b-tree indexes, whose entries PostgreSQL caps near 2,700 bytes
MAX_PAYLOAD_BYTES = 1 << 20  # a payload names things, it does not carry them
MAX_ATTEMPTS = 1_000
MAX_TIMEOUT = timedelta(days=7)
MAX_DELAY = timedelta(days=3_650)  # who waits longer has mixed up units, and PostgreSQL's clock ends somewhere
MAX_PER_ORGANIZATION = 10_000  # each claim counts those that run
MAX_RETENTION = timedelta(days=36_500)

_KIND = re.compile(r"[a-z0-9][a-z0-9_.:-]*")


class Payload(BaseModel):
    """Identifiers and plain values that a job carries; never a row or a session.

    Unknown fields are refused, so that a job written by a newer release fails with a clear message
    instead of running with half of what it was given.
    """

    # JSON has no infinity: as words they come back as numbers, as null they would not validate any more. What is wrong
    # with a payload is told without its values, of which the others may be secret.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings", hide_input_in_errors=True)


class Pool(StrEnum):
    """Where a kind runs, by what it consumes."""

    AGENT = "agent"  # waits on the network: many at once on the supervisor's loop
    INGEST = "ingest"  # eats memory and processors: one capped process per job
    SYSTEM = "system"  # short work on the supervisor's loop, kept apart from long agents


class Priority(IntEnum):
    """Claims take the smallest number first."""

    INTERACTIVE = 0
    DEFAULT = 1
    BULK = 2


class PermanentError(Exception):
    """Raised by a handler: the job is dead at once, further attempts cannot help."""


class Snooze(Exception):
    """Raised by a handler: back into the queue for `delay`, a timedelta or seconds; the attempt is not spent."""

    def __init__(self, delay: timedelta | float) -> None:
        if isinstance(delay, int | float) and not isinstance(delay, bool):
            if not abs(delay) <= MAX_DELAY.total_seconds():  # nor is NaN
                raise ValueError(f"Snooze({delay}): seconds from 0 to {MAX_DELAY.total_seconds():.0f} are allowed")
            delay = timedelta(seconds=delay)
        if not isinstance(delay, timedelta):
            raise TypeError(f"Snooze takes a timedelta or seconds, not {delay!r}")
        if delay < timedelta(0):
            raise ValueError(f"Snooze(delay={delay}) is negative")
        if delay > MAX_DELAY:
            raise ValueError(f"Snooze(delay={delay}) is longer than {MAX_DELAY}")
        super().__init__(f"snoozed for {delay}")
        self.delay = delay


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long a finished job is kept, by how it ended: zero is for ever, None leaves it to the worker's settings.

    Raises `TypeError` or `ValueError` for anything else than a time of up to a hundred years.
    """

    succeeded: timedelta | None = None
    dead: timedelta | None = None
    cancelled: timedelta | None = None

    def __post_init__(self) -> None:
        given: dict[str, object] = {"succeeded": self.succeeded, "dead": self.dead, "cancelled": self.cancelled}
        for status, keep in given.items():
            if keep is None:
                continue
            if not isinstance(keep, timedelta):
                raise TypeError(f"Retention: {status} must be a timedelta or None, not {keep!r}")
            if not timedelta(0) <= keep <= MAX_RETENTION:
                raise ValueError(f"Retention: {status}={keep} is outside 0 to {MAX_RETENTION}")


P = TypeVar("P", bound=Payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[P]):
    """The declaration of a kind.

    `max_attempts` counts charged attempts. `timeout` bounds one attempt. `memory_mb` (pool `ingest` only) asks for
    more or less than `WORKER_INGEST_MEMORY_MB`, in MiB. An exception of a type in `permanent_errors` makes the job
    dead at once. Of each dead job of an `important` kind the owners get a notice. `redact` names fields of the payload
    that are secret although their types do not say so: `card.number`, `tokens.*` for the elements of a list or the
    values of an object. `retention` says how long its finished jobs are kept, where the worker's settings are not to.
    `max_per_organization` bounds how many jobs run at once that name the same `organization_id`, over all workers.
    Raises `ValueError` or `TypeError` where the declaration itself is wrong.
    """

    kind: str
    payload_type: type[P]
    pool: Pool
    max_attempts: int = 5
    timeout: timedelta = timedelta(minutes=5)
    priority: Priority = Priority.DEFAULT
    memory_mb: int | None = None
    permanent_errors: tuple[type[Exception], ...] = ()
    important: bool = False
    redact: Sequence[str] = ()
    retention: Retention = Retention()
    max_per_organization: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str):
            raise TypeError(f"kind must be a string, not {self.kind!r}")
        if not _KIND.fullmatch(self.kind) or len(self.kind) > MAX_KIND_LENGTH:
            raise ValueError(
                f"kind {self.kind!r}: use lower-case letters, digits and . _ : - "
                f"(first a letter or digit, {MAX_KIND_LENGTH} characters at most)"
            )
        payload_type: object = self.payload_type  # what was given, whatever its annotation promised
        if not (isinstance(payload_type, type) and issubclass(payload_type, Payload)):
            raise TypeError(f"{self.kind}: payload_type must be a subclass of Payload, not {self.payload_type!r}")
        if not isinstance(self.pool, Pool):
            raise TypeError(
                f"{self.kind}: pool must be one of {', '.join(f'Pool.{pool.name}' for pool in Pool)}, not {self.pool!r}"
            )
        if not isinstance(self.priority, Priority):
            raise TypeError(f"{self.kind}: priority must be one of {', '.join(p.name for p in Priority)}")
        numbers: dict[str, object] = {
            "max_attempts": self.max_attempts,
            "memory_mb": 1 if self.memory_mb is None else self.memory_mb,
            "max_per_organization": 1 if self.max_per_organization is None else self.max_per_organization,
        }
        for name, number in numbers.items():
            if isinstance(number, bool) or not isinstance(number, int):
                raise TypeError(f"{self.kind}: {name} must be a whole number, not {number!r}")
        if not 1 <= self.max_attempts <= MAX_ATTEMPTS:
            raise ValueError(f"{self.kind}: max_attempts={self.max_attempts} is outside 1 to {MAX_ATTEMPTS}")
        if not isinstance(self.timeout, timedelta):
            raise TypeError(f"{self.kind}: timeout must be a timedelta, not {self.timeout!r}")
        if not timedelta(0) < self.timeout <= MAX_TIMEOUT:
            raise ValueError(f"{self.kind}: timeout={self.timeout} is outside 0 to {MAX_TIMEOUT}")
        if self.memory_mb is not None and self.pool is not Pool.INGEST:
            raise ValueError(f"{self.kind}: memory_mb needs pool ingest; pool {self.pool} has no process of its own")
        if self.memory_mb is not None and self.memory_mb < 1:
            raise ValueError(f"{self.kind}: memory_mb={self.memory_mb} must be at least 1")
        if self.max_per_organization is not None and not 1 <= self.max_per_organization <= MAX_PER_ORGANIZATION:
            raise ValueError(
                f"{self.kind}: max_per_organization={self.max_per_organization} is outside 1 to {MAX_PER_ORGANIZATION}"
            )
        if not isinstance(self.important, bool):
            raise TypeError(f"{self.kind}: important must be True or False, not {self.important!r}")
        retention: object = self.retention
        if not isinstance(retention, Retention):
            raise TypeError(f"{self.kind}: retention must be a Retention, not {self.retention!r}")
        permanent: object = self.permanent_errors
        if not isinstance(permanent, tuple) or not all(
            isinstance(error, type) and issubclass(error, Exception) for error in permanent
        ):
            raise TypeError(
                f"{self.kind}: permanent_errors must be a tuple of exception types, not {self.permanent_errors!r}"
            )
        redact: object = self.redact
        if isinstance(redact, str) or not all(isinstance(path, str) for path in self.redact):
            raise TypeError(f"{self.kind}: redact must be a tuple of paths such as 'card.number', not {redact!r}")
        object.__setattr__(self, "redact", tuple(self.redact))
        if self.redact:
            try:
                secret_paths(self.payload_type, tuple(self.redact))
            except ValueError as error:
                raise ValueError(f"{self.kind}: {error}") from None

    @property
    def secret_paths(self) -> tuple[str, ...]:
        """Where in the payload's JSON secrets stand: by their types, and those of `redact`."""
        return secret_paths(self.payload_type, tuple(self.redact))
