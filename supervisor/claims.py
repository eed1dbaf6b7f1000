"""The claims: one task a pool takes due jobs, as many as it has free slots, and starts them.

A pool is woken by a notification, though not by each where there are many workers (`supervisor.herd`), by a freed slot,
the moment the next known job is due, or what a look at the queue has found; one look a second serves all pools, and an
idle worker claims nothing. Where all of the queue is dear to look at (`supervisor.reach`), that look alone does so.
Claims of all pools take turns on one lock, so that "every claim of this worker that is known" has a meaning: a claim
whose answer was lost is found by comparing under that lock. While a claim is filled and nobody else waits for the turn,
the next one goes out before the jobs of the last are started: the database works on it meanwhile.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from jobs.app import App
from jobs.claim import Claim, ClaimedJob, Wanted
from jobs.failpoints import Failpoint, failpoint
from jobs.outcome import Verdict
from jobs.recovery import Recovery
from jobs.store import JobStore
from jobs.task import Pool
from supervisor.attempts import Attempts
from supervisor.heard import Heard
from supervisor.herd import Herd
from supervisor.reach import Reach
from supervisor.turns import Turns

if TYPE_CHECKING:
    from supervisor.monitor.meter import Meter

MAX_BATCH = 333  # jobs a claim: with more of them, the first wait longer and nothing is gained
MIN_BATCH = 20  # with so few slots a claim takes all that are free
BATCHES = 3  # in the slots at once: one is claimed while one runs and one is written
IN_A_ROW = 10  # claims of a pool in one turn
UNSEEN_SECONDS = 1.5  # the longest that claims ask for some kinds only; between two looks it is a second
DEAR_ENTRIES = 5_000  # of the index, walked over by a look: half a millisecond
DEAR_SHARE = 500  # times what a dear question took, until the next: a core is busy with them for 0.2 % of the time
DEAR_SECONDS = 10.0  # until the next at most
TIMER_SECONDS = 0.001  # after the moment that the database named: a timer may fire a little early
ROOM_SECONDS = 0.1  # many times what the write of one end takes, unless somebody holds its kind's row
IDLE_HORIZON = 300.0  # the longest back-off: what is due later than that is somebody's plan, not work in progress


@dataclass(slots=True)
class Asked:
    """A claim on its way, and what was known as it was asked for: what it comes for, and the monotonic clock."""

    pool: Pool
    wanted: Wanted
    heard: set[str]
    at: float
    answer: Claim | None = None


class Claims:
    """Claims for one worker id.

    `may_claim()` is false while draining and once the lease is lost; `ready(pool)` is false while the pool could not
    start a job. `poll` in seconds.
    """

    def __init__(
        self,
        worker_id: UUID,
        app: App,
        pools: Sequence[Pool],
        store: JobStore,
        recovery: Recovery,
        attempts: Attempts,
        *,
        trusted: Callable[[], bool],
        may_claim: Callable[[], bool],
        ready: Mapping[Pool, Callable[[], bool]],
        poll: float,
        meter: "Meter | None" = None,
    ) -> None:
        self._worker_id = worker_id
        self._kinds = {pool: app.kinds(pool) for pool in pools}
        self._batch = {pool: min(MAX_BATCH, max(MIN_BATCH, attempts.slots(pool) // BATCHES)) for pool in pools}
        self._store = store
        self._recovery = recovery
        self._attempts = attempts
        self._trusted = trusted
        self._may_claim = may_claim
        self._ready = ready
        self._poll = poll
        self._meter = meter
        self._wake = {pool: asyncio.Event() for pool in pools}
        for event in self._wake.values():
            event.set()
        self._probe = dict.fromkeys(pools, True)
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()  # a slot of any pool
        self._idle: dict[Pool, bool] = dict.fromkeys(pools, False)
        self._short_of_slots = dict.fromkeys(pools, False)
        self._timers: dict[Pool, asyncio.TimerHandle] = {}
        self._bounded = {kind for kind, each in app.handlers.items() if each.task.max_per_organization is not None}
        self._pool_of = {kind: pool for pool, kinds in self._kinds.items() for kind in kinds}
        self._herd = Herd(random.Random())
        self._heard = {pool: Heard() for pool in pools}  # what the next claim comes for
        self._looks_after = dict.fromkeys(pools, True)  # the next claim, also if it takes nothing
        self._seen_all = dict.fromkeys(pools, -math.inf)  # when all kinds were last asked for, or looked at
        self._reach = {pool: Reach() for pool in pools}
        self._turns = {pool: Turns() for pool in pools}
        self._claiming: dict[Pool, float] = {}  # since when
        self._looking_since: float | None = None
        self.looked_at: float | None = None  # when the last look at the queue came back, by the monotonic clock
        self._rounds = dict.fromkeys(pools, 0)  # how many claims have begun
        self._is_dear = False  # to look at all of the queue
        self._next_whole_look = 0.0

    def wake(self, pool: Pool, *, came_earlier: bool = False) -> None:
        """Look at the queue of this pool now; at all of it, where a job `came_earlier` than others in the queue."""
        if (event := self._wake.get(pool)) is not None:
            if came_earlier:
                self._reach[pool].came_earlier(time.monotonic())
            self._looks_after[pool] = True
            event.set()

    def hear(self, what: str, kind: str, job_id: int | None = None) -> bool:
        """A notification: a job of this kind was committed, perhaps this one, or `many`, or one `earlier` than others.

        Returns whether this worker claims for it.
        """
        if (pool := self._pool_of.get(kind)) is None:
            return False
        if what == "many":
            self.wake(pool)
            return True
        if what == "earlier":
            self._reach[pool].came_earlier(time.monotonic())
        # Whoever is on the way has to claim again anyway: it cannot know what was committed meanwhile.
        comes = self._wake[pool].is_set() or pool in self._claiming or self._herd.comes(kind)
        if comes:
            self._heard[pool].add(kind, job_id)
            self._wake[pool].set()
        return comes

    def workers_are(self, number: int) -> None:
        """So many workers live, this one among them."""
        self._herd.size = number

    def slot_freed(self, pool: Pool, gone: bool) -> None:
        """One more job of this pool may run: look at its queue, if it was longer than the slots or the job is back."""
        self._freed.set()
        if not gone or self._short_of_slots[pool]:
            self.wake(pool)

    def wake_all(self) -> None:
        """Look at all of all queues now, also for probes of paused kinds."""
        self._herd.begin_anew()
        for pool in self._wake:
            self._probe[pool] = True
            self.wake(pool, came_earlier=True)

    @property
    def idle(self) -> bool:
        """Whether the last look of every pool found nothing due and nothing that a back-off will make due soon."""
        at_rest = not self._turn.locked() and not any(event.is_set() for event in self._wake.values())
        return at_rest and all(self._idle.values())

    def asking_for(self, now: float) -> float:
        """The longest that a claim or a look is on its way at this moment of the monotonic clock; 0 without any."""
        since = [*self._claiming.values(), *([] if self._looking_since is None else [self._looking_since])]
        return now - min(since, default=now)

    def pause_after(self, seconds: float) -> float:
        """How long not to ask again what took `seconds`, because of all that an old snapshot keeps in the indexes."""
        return min(DEAR_SHARE * seconds, DEAR_SECONDS) if self._is_dear else 0.0

    async def claim_once(self, pool: Pool) -> float:
        """Wait until the pool is woken; take and start what is due and fits. Returns 0: there is no pause."""
        event = self._wake[pool]
        await event.wait()
        while event.is_set():  # without a pause: the next claim goes out before the handlers of the last take the loop
            event.clear()
            self._claiming[pool] = time.monotonic()
            try:
                await self._claim_what_fits(pool, event)
            finally:
                del self._claiming[pool]
        return 0

    async def _claim_what_fits(self, pool: Pool, event: asyncio.Event) -> None:
        self._idle[pool] = not self._kinds[pool]
        self._rounds[pool] += 1
        if not (self._has_slots(pool) and self._may_claim() and self._ready[pool]()):
            return  # a freed slot wakes it, and the look does once a second
        looks_after, self._looks_after[pool] = self._looks_after[pool], False
        began = time.monotonic()
        try:
            taken, more = await self._claim(pool, only_heard=not looks_after)
            if more:
                self.wake(pool)  # if only to find that no slot is free
                return
            await asyncio.sleep(0)  # what was taken runs first
            if (taken or looks_after) and not event.is_set():
                reach = self._reach[pool].seconds(time.monotonic()) if self._is_dear else math.inf
                # What was due before and was not taken, somebody holds.
                await self._look([pool], reach, due_since=-math.inf if taken else began)
        except BaseException:
            self.wake(pool)
            raise

    async def look_once(self) -> float:
        """Look at what waits, for everything that no notification tells: times, pauses, lost connections."""
        began = time.monotonic()
        known = [seconds for seconds in self._reaches(began).values() if not math.isinf(seconds)]
        is_whole = not known or began >= self._next_whole_look
        self._looking_since = began
        try:
            await self._look(list(self._wake), math.inf if is_whole else max(known), due_since=-math.inf)
        finally:
            self._looking_since = None
        self.looked_at = now = time.monotonic()
        if is_whole:
            self._next_whole_look = now + self.pause_after(now - began)
        return self._poll * random.uniform(0.9, 1.0)  # a fleet does not look in one moment

    async def _look(self, pools: Sequence[Pool], reach: float, *, due_since: float) -> None:
        """Claim what has been due only since that moment of the monotonic clock, and be there for what will be due."""
        kinds = [kind for pool in pools for kind in self._kinds[pool]]
        if not kinds or not self._may_claim():
            return
        is_whole = math.isinf(reach)
        rounds, reaches = self._rounds.copy(), self._reaches(time.monotonic())
        look = await self._store.look(kinds, reach)
        now = time.monotonic()
        if is_whole:
            self._is_dear = look.walked > DEAR_ENTRIES
        for pool in pools:
            ours = [found for found in look.waiting if found.kind in self._kinds[pool]]
            first = min((found.due_in for found in ours), default=math.inf)
            self._probe[pool] = self._probe[pool] or any(found.probe for found in ours)
            is_new = -first < now - due_since
            if is_new and -first > reaches[pool]:
                self.wake(pool, came_earlier=True)
            if self._wake[pool].is_set() or self._rounds[pool] != rounds[pool]:
                continue  # something has come since: its claim looks again
            if is_whole:
                self._idle[pool] = first > IDLE_HORIZON
                self._seen_all[pool] = time.monotonic()
            if (timer := self._timers.pop(pool, None)) is not None:
                timer.cancel()
            if first <= 0:
                if is_new:
                    self._herd.is_needed(found.kind for found in ours if found.due_in <= 0)
                    self.wake(pool)
            elif first < self._poll:
                self._timers[pool] = asyncio.get_running_loop().call_later(first + TIMER_SECONDS, self.wake, pool)

    def _reaches(self, now: float) -> dict[Pool, float]:
        return {pool: reach.seconds(now) for pool, reach in self._reach.items()}

    def _has_slots(self, pool: Pool) -> bool:
        self._short_of_slots[pool] = self._attempts.free_slots(pool) <= 0
        return not self._short_of_slots[pool]

    async def _claim(self, pool: Pool, *, only_heard: bool) -> tuple[int, bool]:
        async with self._turn:
            if not self._has_slots(pool):
                return 0, False  # while this waited, a claim went along with an end and filled them
            slots = min(self._attempts.free_slots(pool), self._batch[pool])
            asked = self._ask(pool, slots, only_heard=only_heard)
            claim = await self._store.claim(asked.wanted)
            taken = len(claim.jobs)
            for _ in range(IN_A_ROW):
                if (following := self._following(asked, claim)) is None:
                    break
                asked, claim = following, await self._claim_while_starting(pool, claim.jobs, following)
                taken += len(claim.jobs)
            more = self._take(asked, claim)
            if not more and self._probe[pool] and len(claim.jobs) < asked.wanted.slots:
                probes = await self._store.claim_probe(self._worker_id, pool, self._kinds[pool])
                if probes:
                    failpoint(Failpoint.PROBE_CLAIMED)
                self._start(pool, probes)
                taken += len(probes)
                self._probe[pool] = False
        return taken, more

    def _following(self, asked: "Asked", claim: Claim) -> "Asked | None":
        """What to claim before anything else is done, where a claim was filled and nobody waits for the turn."""
        pool = asked.pool
        slots = min(self._attempts.free_slots(pool) - len(claim.jobs), self._batch[pool])
        is_filled = len(claim.jobs) == asked.wanted.slots
        if not is_filled or slots <= 0 or len(self._claiming) > 1 or not (self._may_claim() and self._ready[pool]()):
            return None
        self._learn(asked, claim)
        self._rounds[pool] += 1
        self._claiming[pool] = time.monotonic()
        return self._ask(pool, slots)

    async def _claim_while_starting(self, pool: Pool, jobs: Sequence[ClaimedJob], following: "Asked") -> Claim:
        """The database works on the next claim while these jobs are started."""
        coming = asyncio.create_task(self._store.claim(following.wanted), name=f"oomph next claim of {pool}")
        try:
            await asyncio.sleep(0)  # it goes out first
        except BaseException:
            coming.cancel()
            raise
        finally:
            self._start(pool, jobs, more_follow=True)
        return await coming

    @asynccontextmanager
    async def along(self, jobs: Sequence[ClaimedJob]) -> AsyncIterator["Asked | None"]:
        """While the ends of these jobs are written: the claim that goes along with them, or None.

        It takes the place of the next one in a small pool whose slots are all in use, for as many jobs as these make
        room for. Whoever has written them, and has said so, sets `answer`; what was claimed starts after that.
        """
        pool = Pool(jobs[0].pool)
        freed = sum(job.pool == pool for job in jobs)
        goes = (
            self._short_of_slots.get(pool, False)
            and self._attempts.slots(pool) <= MIN_BATCH
            and not self._turn.locked()
            and self._may_claim()
            and self._ready[pool]()
        )
        if not goes:
            yield None
            return
        async with self._turn:
            self._rounds[pool] += 1
            self._idle[pool] = False
            asked = self._ask(pool, self._attempts.free_slots(pool) + freed)
            try:
                yield asked
            finally:
                if asked.answer is None:
                    self.wake(pool)
            if asked.answer is not None:
                await self._await_room(pool, len(asked.answer.jobs))
                if self._take(asked, asked.answer):
                    self.wake(pool)

    async def _await_room(self, pool: Pool, slots: int) -> None:
        """An end that had to be written by itself gives its slot back a moment later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ROOM_SECONDS):
                while self._attempts.free_slots(pool) < slots:
                    self._freed.clear()
                    await self._freed.wait()

    def _ask(self, pool: Pool, slots: int, *, only_heard: bool = False) -> "Asked":
        """Where nothing but notifications woke it, an idle worker asks for what they told: each kind has its price.

        Not where all kinds have not been asked for or looked at lately: while notifications come without a pause, every
        look is overtaken by a claim.
        """
        reach, turns, now = self._reach[pool], self._turns[pool], time.monotonic()
        heard, self._heard[pool] = self._heard[pool], Heard()
        is_idle = only_heard and bool(heard.kinds) and now - self._seen_all[pool] <= UNSEEN_SECONDS
        if is_idle and 0 < len(heard.ids) <= slots and not self._bounded & heard.kinds:
            named = Wanted(self._worker_id, pool, sorted(heard.kinds), slots, ids=heard.ids)
            return Asked(pool, named, heard.kinds, now)
        if is_idle and not self._is_dear:
            kinds: Sequence[str] = sorted(heard.kinds)
        else:
            kinds, self._seen_all[pool] = self._kinds[pool], now
        wanted = Wanted(
            self._worker_id,
            pool,
            kinds,
            slots,
            reach.seconds(now) if self._is_dear else math.inf,
            reach.marks(now),
            turns.stops,
            turns.served,
        )
        return Asked(pool, wanted, heard.kinds, now)

    def _take(self, asked: "Asked", claim: Claim) -> bool:
        """Start what was claimed. Returns whether there is more to claim."""
        more = self._learn(asked, claim)
        self._start(asked.pool, claim.jobs, more_follow=len(claim.jobs) == asked.wanted.slots)
        return more

    def _learn(self, asked: "Asked", claim: Claim) -> bool:
        """Note what a claim tells of the queue. Returns whether there is more to claim."""
        pool, jobs = asked.pool, claim.jobs
        reach = self._reach[pool]
        self._turns[pool].taken(jobs, claim.stops)
        if self._meter is not None:
            self._meter.claimed(pool, jobs, time.monotonic() - asked.at)
        if jobs:
            failpoint(Failpoint.CLAIMED)
        is_full = len(jobs) == asked.wanted.slots
        found = {job.kind for job in jobs} if not claim.parked else asked.heard
        self._herd.is_needed(found)
        self._herd.came_in_vain(asked.heard - found)
        if asked.wanted.ids:  # what others did not take, a claim that looks at the queue may
            return is_full or (len(jobs) < len(asked.wanted.ids) and self._herd.size == 1)
        if is_full:
            reach.filled(jobs, asked.at)
        elif asked.wanted.marks:  # there may be something before them
            reach.passed()
            return True
        elif not claim.parked and asked.wanted.kinds is self._kinds[pool]:
            reach.emptied(asked.at)
        return is_full or claim.parked > 0

    def _start(self, pool: Pool, jobs: Sequence[ClaimedJob], *, more_follow: bool = False) -> None:
        jobs = self._attempts.new_among(jobs)
        if not self._trusted():
            self._give_back(jobs, Verdict.LEASE_LOST, "the lease was lost during the claim")
        elif not self._may_claim():
            self._give_back(jobs, Verdict.RELEASED, "the shutdown began during the claim")
        elif jobs:
            free = self._attempts.free_slots(pool)
            self._attempts.start(pool, jobs[:free], self._trusted, more_follow=more_follow)
            self._give_back(jobs[free:], Verdict.RELEASED, "the slot that it was claimed for is not free yet")

    def _give_back(self, jobs: Sequence[ClaimedJob], verdict: Verdict, why: str) -> None:
        for job in jobs:
            self._attempts.give_back(job, self._trusted, verdict, why)

    async def release_unknown(self) -> int:
        """Give back what a claim of this worker took although its answer never arrived; one on its way is waited for.

        Raises `DatabaseUnavailable`.
        """
        async with self._turn:
            return await self._recovery.release_unknown(self._worker_id, self._attempts.fences)
