"""What happened, as plain values: read once after the drain, judged by `checker`. Times are seconds since the epoch."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, LiteralString

import psycopg

RENEWAL_SECONDS = 2.5  # from one to the next at the longest, while a worker keeps its lease


@dataclass(frozen=True, slots=True)
class Change:
    """One committed change of a job: `old` is None for a new row, `new` for a deleted one; `at` is its commit."""

    seq: int
    at: float
    job: int
    kind: str
    old: str | None
    new: str | None
    old_claim: int | None
    claim: int
    old_attempt: int | None
    attempt: int
    max_attempts: int = 5
    worker: str | None = None
    key: str | None = None
    dedupe_key: str | None = None
    dedupe_active: bool = False
    schedule: str | None = None
    occurrence: float | None = None
    old_worker: str | None = None
    told_by: str | None = None  # the note of its progress: "claim 3"
    result_claim: int | None = None
    writer: str = ""
    xid: int = 0


@dataclass(frozen=True, slots=True)
class KindChange:
    seq: int
    at: float
    kind: str
    paused: bool
    probe: bool = False
    probe_job: int | None = None
    generation: int = 0
    kill_streak: int = 0


@dataclass(frozen=True, slots=True)
class LeaseChange:
    seq: int
    at: float
    worker: str
    pid: int
    until: float
    lost: bool = False
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the diary that an attempt wrote: start, beat, effect, die or end."""

    at: float
    job: int
    claim: int
    pid: int
    mode: str
    event: str


@dataclass(frozen=True, slots=True)
class Attempt:
    job: int
    claim: int
    kind: str
    worker: str | None
    verdict: str
    charged: bool
    is_kill: bool


@dataclass(frozen=True, slots=True)
class Halt:
    """A process that could not act: stopped, or killed for good (`until` is infinite)."""

    pid: int
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Sighting:
    """A process that was seen alive (or, as a zombie, dead and not reaped) from `first` to `last`."""

    pid: int
    what: str  # child, helper or zombie
    owner: int  # the supervisor's pid
    first: float
    last: float
    job: int | None = None
    claim: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """One claim of a job, from its commit to the commit of its end."""

    job: int
    claim: int
    kind: str
    worker: str | None
    key: str | None
    began: float
    ended: float | None
    status: str | None
    refunded: bool
    attempt: int
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Slots:
    """Of a pool, over all workers: the slots there should be, and the most jobs that ran at once after the drain."""

    pool: str
    expected: int
    most: int


@dataclass(frozen=True, slots=True)
class Exit:
    """How a supervisor ended; `asked` says that it was told to by SIGTERM, `sent` which signals it was sent at all.

    `started` is false for one that was never ready: its start may fail in the moment in which it is told to end.
    """

    pid: int
    status: int
    asked: bool
    at: float
    sent: frozenset[int] = frozenset()
    started: bool = True


@dataclass(frozen=True, kw_only=True)
class History:
    """`enqueued` are jobs whose commit was answered, `rolled_back` marks of jobs that must not exist."""

    changes: Sequence[Change] = ()
    kinds: Sequence[KindChange] = ()
    leases: Sequence[LeaseChange] = ()
    diary: Sequence[Entry] = ()
    attempts: Sequence[Attempt] = ()
    effects: Sequence[tuple[int, int]] = ()
    effect_jobs: frozenset[int] = frozenset()
    enqueued: frozenset[int] = frozenset()
    rolled_back: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    halts: Sequence[Halt] = ()
    # Of a supervisor that could act: its way to the database was broken, or its template stood still.
    troubles: Sequence[Halt] = ()
    outages: Sequence[tuple[float, float]] = ()  # while no worker may have been able to tick
    sightings: Sequence[Sighting] = ()
    endless_kinds: frozenset[str] = frozenset()  # schedules go on firing during the drain
    drained_at: float = float("inf")
    slots: Sequence[Slots] = ()
    exits: Sequence[Exit] = ()
    grids: dict[str, float] = field(default_factory=dict)  # schedule -> seconds between its occurrences
    skipping: frozenset[str] = frozenset()  # schedules that fire nothing while an earlier occurrence is not finished

    def by_job(self) -> dict[int, list[Change]]:
        found: dict[int, list[Change]] = defaultdict(list)
        for change in sorted(self.changes, key=lambda change: change.seq):
            found[change.job].append(change)
        return found

    def spans(self) -> Iterator[Span]:
        """Every claim. One that never ended has no end."""
        for changes in self.by_job().values():
            for place, began in enumerate(changes):
                if began.old != "running" and began.new == "running":
                    ended = next((after for after in changes[place + 1 :] if after.new != "running"), None)
                    refunded = ended is not None and ended.attempt < began.attempt
                    end = (None, None) if ended is None else (ended.at, ended.new)
                    names = (began.job, began.claim, began.kind, began.worker, began.key)
                    yield Span(*names, began.at, *end, refunded, began.attempt, began.max_attempts)

    def span_of(self) -> dict[tuple[int, int], Span]:
        """Every claim, by job and claim number."""
        return {(span.job, span.claim): span for span in self.spans()}

    def verdicts(self) -> dict[tuple[int, int], str]:
        """How each claim ended that did not simply succeed."""
        return {(attempt.job, attempt.claim): attempt.verdict for attempt in self.attempts}

    def lease_at(self, worker: str | None, at: float) -> LeaseChange | None:
        """What was written last, by then, about the lease of that worker; None: it was not registered."""
        leases = self.leases_of.get(worker or "", [])
        place = bisect_right(leases, at, key=lambda lease: lease.at)
        return leases[place - 1] if place else None

    @cached_property
    def leases_of(self) -> dict[str, list[LeaseChange]]:
        """The life of every lease, by worker."""
        found: dict[str, list[LeaseChange]] = defaultdict(list)
        for lease in sorted(self.leases, key=lambda lease: lease.seq):
            found[lease.worker].append(lease)
        return found

    def served(self, since: float, until: float) -> float:
        """For how long, between these, any worker was there: the time between renewals that follow each other."""
        times = sorted({since, until, *(lease.at for lease in self.leases if since < lease.at < until)})
        return sum(after - before for before, after in pairwise(times[1:-1]) if after - before <= RENEWAL_SECONDS)

    def pid_of(self) -> dict[str, int]:
        """The process of each worker id."""
        return {lease.worker: lease.pid for lease in self.leases}

    def is_halted(self, pid: int | None, at: float, recovery: float) -> bool:
        """Whether that process could not act at that time, or had become able to less than `recovery` s before.

        What a killed one ran dies with it: that excuses no more than the time of `recovery`.
        """
        for halt in self.halts:
            until = halt.since if halt.until == float("inf") else halt.until
            if halt.pid == pid and halt.since <= at <= until + recovery:
                return True
        return False

    def is_hindered(self, pid: int | None, since: float, until: float) -> bool:
        """Whether that process was stopped or in trouble at some time between these."""
        stops = (halt for halt in self.halts if halt.until < float("inf"))
        return any(h.pid == pid and h.since <= until and since <= h.until for h in (*stops, *self.troubles))


_COMMITTED = "extract(epoch FROM coalesce(pg_xact_commit_timestamp(xid::xid), at))::float8"


def read(db: "psycopg.Connection[Any]", **observed: Any) -> History:
    """The history in the database, with what the driver itself `observed`."""

    def rows(query: LiteralString) -> list[tuple[Any, ...]]:
        return db.execute(query).fetchall()

    changes = rows(
        f"SELECT seq, {_COMMITTED}, job_id, kind, old_status, status, old_claim, claim, old_attempt, attempt, "
        "max_attempts, worker_id::text, concurrency_key, dedupe_key, dedupe_active, schedule, "
        "extract(epoch FROM occurrence)::float8, old_worker_id::text, told_by, result_claim, writer, "
        "xid::text::bigint FROM chaos_changes ORDER BY seq"
    )
    kinds = rows(
        f"SELECT seq, {_COMMITTED}, kind, paused, probe, probe_job_id, generation, kill_streak "
        "FROM chaos_kinds ORDER BY seq"
    )
    leases = rows(
        f"SELECT seq, {_COMMITTED}, worker_id::text, pid, extract(epoch FROM lease_until)::float8, lost, deleted "
        "FROM chaos_leases ORDER BY seq"
    )
    diary = rows("SELECT extract(epoch FROM at)::float8, job_id, claim, pid, mode, event FROM chaos_diary ORDER BY seq")
    attempts = rows(
        "SELECT job_id, claim, kind, worker_id::text, verdict, charged, is_kill FROM background_attempts "
        "ORDER BY job_id, claim"
    )
    effects = rows("SELECT job_id, claim FROM chaos_effects")
    effect_jobs = rows("SELECT id FROM background_jobs WHERE payload ->> 'do' = 'effect'")
    marks = rows("SELECT DISTINCT payload ->> 'mark' FROM background_jobs WHERE payload ? 'mark'")
    return History(
        changes=[Change(*row) for row in changes],
        kinds=[KindChange(*row) for row in kinds],
        leases=[LeaseChange(*row) for row in leases],
        diary=[Entry(*row) for row in diary],
        attempts=[Attempt(*row) for row in attempts],
        effects=[(job, claim) for job, claim in effects],
        effect_jobs=frozenset(row[0] for row in effect_jobs),
        marks=frozenset(row[0] for row in marks),
        **observed,
    )
