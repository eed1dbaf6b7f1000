"""What a claim asks for, and what it answers."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from jobs.arrays import numbers, texts
from jobs.lane import Call, Value


class Fence(NamedTuple):
    """What every write about a running job must match, together with `status = 'running'`."""

    id: int
    claim: int


class ClaimedJob(NamedTuple):
    """A job as its claim returned it."""

    id: int
    claim: int
    kind: str
    pool: str
    payload: str  # JSON text, not yet validated
    attempt: int
    max_attempts: int
    timeout: timedelta
    organization_id: str | None = None
    concurrency_key: str | None = None
    priority: int = 1
    run_after: float = 0.0  # seconds since 1970
    trace_context: str | None = None  # the enqueuer's; while a traced worker runs it, that of the attempt's own span

    @property
    def fence(self) -> Fence:
        return Fence(self.id, self.claim)


class Mark(NamedTuple):
    """How far a worker has claimed of one kind and priority: the last job's place in the queue."""

    kind: str
    priority: int
    run_after: float
    id: int


class Stop(NamedTuple):
    """Where a claim stopped among the lines of a kind and priority: the organisation that had the last turn."""

    kind: str
    priority: int
    organization_id: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a claim asks for: up to `slots` due jobs of these kinds, best first.

    Of a kind and priority with a mark those past it; of the others those that have been due for `reach` seconds at
    most. Where organisations take turns, they do so from these stops on, and of several kinds those come last that
    were `served` last. With `ids` these jobs alone, as far as nothing else need be known of the queue to start them.
    """

    worker_id: UUID
    pool: str
    kinds: Sequence[str]
    slots: int
    reach: float = math.inf
    marks: Collection[Mark] = ()
    stops: Collection[Stop] = ()
    served: Sequence[str] = ()
    ids: Sequence[int] = ()

    @property
    def call(self) -> Call:
        asker = {"worker_id": str(self.worker_id), "pool": self.pool, "kinds": texts(self.kinds)}
        if self.ids:
            return "claim_named", {**asker, "ids": numbers(self.ids)}
        plain: dict[str, Value] = {**asker, "slots": self.slots, "reach": self.reach}
        if not self.marks and not self.stops:
            return "claim", plain
        return "claim_past", {
            **plain,
            "mark_kinds": texts(mark.kind for mark in self.marks),
            "mark_priorities": numbers(mark.priority for mark in self.marks),
            "mark_run_afters": numbers(mark.run_after for mark in self.marks),
            "mark_ids": numbers(mark.id for mark in self.marks),
            "served": texts(self.served),
            "stop_kinds": texts(stop.kind for stop in self.stops),
            "stop_priorities": numbers(stop.priority for stop in self.stops),
            "stops": texts(stop.organization_id for stop in self.stops),
        }


@dataclass(frozen=True, slots=True)
class Claim:
    """The answer to a claim.

    `parked` jobs were passed over for their concurrency key, or because somebody else was deciding about their line:
    claim again, others follow. `stops` are new ones, where organisations took turns.
    """

    jobs: list[ClaimedJob]
    parked: int = 0
    stops: Sequence[Stop] = ()


class Waiting(NamedTuple):
    """A kind of which jobs wait: the seconds until the first is due (zero or less: now), whether a probe may go."""

    kind: str
    due_in: float
    probe: bool


@dataclass(frozen=True, slots=True)
class Look:
    """The answer to a look. `walked` entries of the queue's index were passed for it, dead ones included."""

    waiting: list[Waiting]
    walked: int
