"""The queue of one pool, as one worker knows it: what has woken its claims, and from where the next one looks."""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from jobs.app import App
from jobs.claim import Claim, Look, Wanted
from jobs.task import Pool
from supervisor.claiming.heard import Heard
from supervisor.claiming.herd import Herd
from supervisor.claiming.reach import Reach
from supervisor.claiming.turns import Turns

MAX_BATCH = 334  # jobs a claim: with more of them, the first wait longer and nothing is gained
MIN_BATCH = 20  # with so few slots a claim takes all that are free
BATCHES = 3  # in the slots at once: one is claimed while one runs and one is written
UNSEEN_SECONDS = 1.5  # the longest that claims ask for some kinds only; between two looks it is a second
TIMER_SECONDS = 0.001  # after the moment that the database named: a timer may fire a little early
IDLE_HORIZON = 300.0  # the longest back-off: what is due later than that is somebody's plan, not work in progress


@dataclass(slots=True)
class Asked:
    """A claim on its way, and what was known as it was asked for: what it comes for, and the monotonic clock."""

    queue: "PoolQueue"
    wanted: Wanted
    heard: set[str]
    at: float
    answer: Claim | None = None


class PoolQueue:
    """`slots` of the pool, `poll` in seconds; moments are of the monotonic clock. `herd` is of all of its pools."""

    def __init__(self, pool: Pool, app: App, worker_id: UUID, slots: int, herd: Herd, poll: float) -> None:
        self.pool = pool
        self.kinds = app.kinds(pool)
        self.batch = min(MAX_BATCH, max(MIN_BATCH, math.ceil(slots / BATCHES)))
        self.woken = asyncio.Event()
        self.woken.set()
        self.is_idle = False  # the last look at all of it found nothing to be there for
        self.is_short_of_slots = False
        self.may_probe = True  # for a paused kind
        self.claiming_since: float | None = None
        self.rounds = 0  # how many claims have begun
        self._worker_id = worker_id
        self._bounded = {kind for kind in self.kinds if app.handlers[kind].task.max_per_organization is not None}
        self._herd = herd
        self._poll = poll
        self._reach = Reach()
        self._turns = Turns()
        self._heard = Heard()  # what the next claim comes for
        self._looks_after = True  # the next claim, also if it takes nothing
        self._seen_all = -math.inf  # when all kinds were last asked for, or looked at
        self._timer: asyncio.TimerHandle | None = None

    def wake(self, *, came_earlier: bool = False) -> None:
        """Claim from it now; from all of it, where a job `came_earlier` than others in it."""
        if came_earlier:
            self.came_earlier()
        self._looks_after = True
        self.woken.set()

    def came_earlier(self) -> None:
        """A job came to a place that claims may have passed over."""
        self._reach.came_earlier(time.monotonic())

    def hear(self, kind: str, job_id: int | None) -> None:
        """Claim what was notified: that job, or one of the kind."""
        self._heard.add(kind, job_id)
        self.woken.set()

    def looks_after(self) -> bool:
        """Whether the claim that begins now is to be followed by a look even if it takes nothing; asked once."""
        looks_after, self._looks_after = self._looks_after, False
        return looks_after

    def reach(self) -> float:
        """What has been due for longer than that was taken already, as far as claims know; in seconds."""
        return self._reach.seconds(time.monotonic())

    def ask(self, slots: int, *, is_dear: bool, only_heard: bool = False) -> Asked:
        """The next claim. `is_dear`: claims do not walk over all of the queue.

        Where nothing but notifications woke it, an idle worker asks for what they told: each kind has its price. Not
        where all kinds have not been asked for or looked at lately: while notifications come without a pause, every
        look is overtaken by a claim.
        """
        now = time.monotonic()
        heard, self._heard = self._heard, Heard()
        is_told = only_heard and bool(heard.kinds) and now - self._seen_all <= UNSEEN_SECONDS
        if is_told and 0 < len(heard.ids) <= slots and not self._bounded & heard.kinds:
            named = Wanted(self._worker_id, self.pool, sorted(heard.kinds), slots, ids=heard.ids)
            return Asked(self, named, heard.kinds, now)
        if is_told and not is_dear:
            kinds: Sequence[str] = sorted(heard.kinds)
        else:
            kinds, self._seen_all = self.kinds, now
        wanted = Wanted(
            self._worker_id,
            self.pool,
            kinds,
            slots,
            self._reach.seconds(now) if is_dear else math.inf,
            self._reach.marks(now),
            self._turns.stops,
            self._turns.served,
        )
        return Asked(self, wanted, heard.kinds, now)

    def learn(self, asked: Asked, claim: Claim) -> bool:
        """Note what a claim tells of the queue. Returns whether there is more to claim."""
        jobs = claim.jobs
        self._turns.taken(jobs, claim.stops)
        is_full = len(jobs) == asked.wanted.slots
        found = {job.kind for job in jobs} if not claim.parked else asked.heard
        self._herd.is_needed(found)
        self._herd.came_in_vain(asked.heard - found)
        if asked.wanted.ids:  # what others did not take, a claim that looks at the queue may
            return is_full or (len(jobs) < len(asked.wanted.ids) and self._herd.size == 1)
        if is_full:
            self._reach.filled(jobs, asked.at)
        elif asked.wanted.marks:  # there may be something before them
            self._reach.passed()
            return True
        elif not claim.parked and asked.wanted.kinds is self.kinds:
            self._reach.emptied(asked.at)
        return is_full or claim.parked > 0

    def see(self, look: Look, *, is_whole: bool, due_since: float, reach: float, rounds: int) -> None:
        """Claim what a look has found due since that moment, and be there for what will be due.

        `reach` and `rounds` are those of the moment when the look was sent.
        """
        now = time.monotonic()
        ours = [found for found in look.waiting if found.kind in self.kinds]
        first = min((found.due_in for found in ours), default=math.inf)
        self.may_probe = self.may_probe or any(found.probe for found in ours)
        is_new = -first < now - due_since
        if is_new and -first > reach:
            self.wake(came_earlier=True)
        if self.woken.is_set() or self.rounds != rounds:
            return  # something has come since: its claim looks again
        if is_whole:
            self.is_idle = first > IDLE_HORIZON
            self._seen_all = now
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if first <= 0:
            if is_new:
                self._herd.is_needed(found.kind for found in ours if found.due_in <= 0)
                self.wake()
        elif first < self._poll:
            self._timer = asyncio.get_running_loop().call_later(first + TIMER_SECONDS, self.wake)
