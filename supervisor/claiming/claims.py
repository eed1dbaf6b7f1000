"""The claims: one task a pool takes due jobs, as many as it has free slots, and starts them.

A pool is woken by a notification, though not by each where there are many workers (see `herd`), by a freed slot, the
moment the next known job is due, or what a look at the queue has found; one look a second serves all pools, and an idle
worker claims nothing. Where all of the queue is dear to look at (see `reach`), that look alone does so. Claims of all
pools take turns on one lock, so that "every claim of this worker that is known" has a meaning: a claim whose answer was
lost is found by comparing under that lock. While a claim is filled and nobody else waits for the turn, the next one
goes out before the jobs of the last are started: the database works on it meanwhile.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from uuid import UUID

from jobs.app import App
from jobs.claim import Claim, ClaimedJob
from jobs.failpoints import Failpoint, failpoint
from jobs.outcome import Verdict
from jobs.recovery import Recovery, Released
from jobs.store import JobStore
from jobs.task import Pool
from supervisor.attempts import Attempts
from supervisor.claiming.herd import Herd
from supervisor.claiming.pool_queue import MIN_BATCH, Asked, PoolQueue

if TYPE_CHECKING:
    from supervisor.monitor.meter import Meter

IN_A_ROW = 10  # claims of a pool in one turn
DEAR_ENTRIES = 5_000  # of the index, walked over by a look: half a millisecond
DEAR_SHARE = 500  # times what a dear question took, until the next: a core is busy with them for 0.2 % of the time
DEAR_SECONDS = 10.0  # until the next at most
ROOM_SECONDS = 0.1  # many times what the write of one end takes, unless somebody holds its kind's row


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
        ready: Callable[[Pool], bool],
        poll: float,
        meter: "Meter | None" = None,
    ) -> None:
        self._worker_id = worker_id
        self._store = store
        self._recovery = recovery
        self._attempts = attempts
        self._trusted = trusted
        self._may_claim = may_claim
        self._ready = ready
        self._poll = poll
        self._meter = meter
        self._herd = Herd(random.Random())
        self._queues = {pool: PoolQueue(pool, app, worker_id, attempts.slots(pool), self._herd, poll) for pool in pools}
        self._queue_of = {kind: queue for queue in self._queues.values() for kind in queue.kinds}
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()  # a slot of any pool
        self._looking_since: float | None = None
        self.looked_at: float | None = None  # when the last look at the queue came back, by the monotonic clock
        self._is_dear = False  # to look at all of the queue
        self._next_whole_look = 0.0

    def wake(self, pool: Pool) -> None:
        """Look at the queue of this pool now."""
        if (queue := self._queues.get(pool)) is not None:
            queue.wake()

    def hear(self, what: str, kind: str, job_id: int | None = None) -> bool:
        """A notification: a job of this kind was committed, perhaps this one, or `many`, or one `earlier` than others.

        Returns whether this worker claims for it.
        """
        if (queue := self._queue_of.get(kind)) is None:
            return False
        if what == "many":
            queue.wake()
            return True
        if what == "earlier":
            queue.came_earlier()
        # Whoever is on the way has to claim again anyway: it cannot know what was committed meanwhile.
        comes = queue.woken.is_set() or queue.claiming_since is not None or self._herd.comes(kind)
        if comes:
            queue.hear(kind, job_id)
        return comes

    def workers_are(self, number: int) -> None:
        """So many workers live, this one among them."""
        self._herd.size = number

    def slot_freed(self, pool: Pool, gone: bool) -> None:
        """One more job of this pool may run: look at its queue, if it was longer than the slots or the job is back."""
        self._freed.set()
        queue = self._queues.get(pool)
        if queue is not None and (queue.is_short_of_slots or not gone):
            queue.wake()

    def wake_all(self) -> None:
        """Look at all of all queues now, also for probes of paused kinds."""
        self._herd.begin_anew()
        for queue in self._queues.values():
            queue.may_probe = True
            queue.wake(came_earlier=True)

    @property
    def idle(self) -> bool:
        """Whether the last look of every pool found nothing due and nothing that a back-off will make due soon."""
        at_rest = not self._turn.locked() and not any(queue.woken.is_set() for queue in self._queues.values())
        return at_rest and all(queue.is_idle for queue in self._queues.values())

    def asking_for(self, now: float) -> float:
        """The longest that a claim or a look is on its way at this moment of the monotonic clock; 0 without any."""
        since = [self._looking_since, *(queue.claiming_since for queue in self._queues.values())]
        return now - min((moment for moment in since if moment is not None), default=now)

    def pause_after(self, seconds: float) -> float:
        """How long not to ask again what took `seconds`, because of all that an old snapshot keeps in the indexes."""
        return min(DEAR_SHARE * seconds, DEAR_SECONDS) if self._is_dear else 0.0

    async def claim_once(self, pool: Pool) -> float:
        """Wait until the pool is woken; take and start what is due and fits. Returns 0: there is no pause."""
        queue = self._queues[pool]
        await queue.woken.wait()
        while queue.woken.is_set():  # no pause: the next claim goes out before the handlers of the last take the loop
            queue.woken.clear()
            queue.claiming_since = time.monotonic()
            try:
                await self._claim_what_fits(queue)
            finally:
                queue.claiming_since = None
        return 0

    async def _claim_what_fits(self, queue: PoolQueue) -> None:
        queue.is_idle = not queue.kinds
        queue.rounds += 1
        if not (self._has_slots(queue) and self._can_claim(queue.pool)):
            return  # a freed slot wakes it, and the look does once a second
        looks_after = queue.looks_after()
        began = time.monotonic()
        try:
            taken, more = await self._claim(queue, only_heard=not looks_after)
            if more:
                queue.wake()  # if only to find that no slot is free
                return
            await asyncio.sleep(0)  # what was taken runs first
            if (taken or looks_after) and not queue.woken.is_set():
                reach = queue.reach() if self._is_dear else math.inf
                # What was due before and was not taken, somebody holds.
                await self._look([queue], reach, due_since=-math.inf if taken else began)
        except BaseException:
            queue.wake()
            raise

    async def look_once(self) -> float:
        """Look at what waits, for everything that no notification tells: times, pauses, lost connections."""
        began = time.monotonic()
        known = [reach for queue in self._queues.values() if not math.isinf(reach := queue.reach())]
        is_whole = not known or began >= self._next_whole_look
        self._looking_since = began
        try:
            await self._look(list(self._queues.values()), math.inf if is_whole else max(known), due_since=-math.inf)
        finally:
            self._looking_since = None
        self.looked_at = now = time.monotonic()
        if is_whole:
            self._next_whole_look = now + self.pause_after(now - began)
        return self._poll * random.uniform(0.9, 1.0)  # a fleet does not look in one moment

    async def _look(self, queues: Sequence[PoolQueue], reach: float, *, due_since: float) -> None:
        """Claim what has been due only since that moment of the monotonic clock, and be there for what will be due."""
        kinds = [kind for queue in queues for kind in queue.kinds]
        if not kinds or not self._may_claim():
            return
        is_whole = math.isinf(reach)
        before = [(queue, queue.reach(), queue.rounds) for queue in queues]
        look = await self._store.look(kinds, reach)
        if is_whole:
            self._is_dear = look.walked > DEAR_ENTRIES
        for queue, taken, rounds in before:
            queue.see(look, is_whole=is_whole, due_since=due_since, reach=taken, rounds=rounds)

    def _can_claim(self, pool: Pool) -> bool:
        return self._may_claim() and self._ready(pool)

    def _has_slots(self, queue: PoolQueue) -> bool:
        queue.is_short_of_slots = self._attempts.free_slots(queue.pool) <= 0
        return not queue.is_short_of_slots

    async def _claim(self, queue: PoolQueue, *, only_heard: bool) -> tuple[int, bool]:
        async with self._turn:
            if not self._has_slots(queue):
                return 0, False  # while this waited, a claim went along with an end and filled them
            slots = min(self._attempts.free_slots(queue.pool), queue.batch)
            asked = queue.ask(slots, is_dear=self._is_dear, only_heard=only_heard)
            claim = await self._store.claim(asked.wanted)
            taken = len(claim.jobs)
            for _ in range(IN_A_ROW):
                if (following := self._following(asked, claim)) is None:
                    break
                asked, claim = following, await self._claim_while_starting(claim.jobs, following)
                taken += len(claim.jobs)
            more = self._take(asked, claim)
            if not more and queue.may_probe and len(claim.jobs) < asked.wanted.slots:
                probes = await self._store.claim_probe(self._worker_id, queue.pool, queue.kinds)
                if probes:
                    failpoint(Failpoint.PROBE_CLAIMED)
                self._start(queue.pool, probes)
                taken += len(probes)
                queue.may_probe = False
        return taken, more

    def _following(self, asked: Asked, claim: Claim) -> Asked | None:
        """What to claim before anything else is done, where a claim was filled and nobody waits for the turn."""
        queue = asked.queue
        slots = min(self._attempts.free_slots(queue.pool) - len(claim.jobs), queue.batch)
        is_filled = len(claim.jobs) == asked.wanted.slots
        others = any(other.claiming_since is not None for other in self._queues.values() if other is not queue)
        if not is_filled or slots <= 0 or others or not self._can_claim(queue.pool):
            return None
        self._learn(asked, claim)
        queue.rounds += 1
        queue.claiming_since = time.monotonic()
        return queue.ask(slots, is_dear=self._is_dear)

    async def _claim_while_starting(self, jobs: Sequence[ClaimedJob], following: Asked) -> Claim:
        """The database works on the next claim while these jobs are started."""
        pool = following.queue.pool
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
    async def along(self, jobs: Sequence[ClaimedJob]) -> AsyncIterator[Asked | None]:
        """While the ends of these jobs are written: the claim that goes along with them, or None.

        It takes the place of the next one in a small pool whose slots are all in use, for as many jobs as these make
        room for. Whoever has written them, and has said so, sets `answer`; what was claimed starts after that.
        """
        pool = Pool(jobs[0].pool)
        queue = self._queues.get(pool)
        goes = (
            queue is not None
            and queue.is_short_of_slots
            and self._attempts.slots(pool) <= MIN_BATCH
            and not self._turn.locked()
            and self._can_claim(pool)
        )
        if queue is None or not goes:
            yield None
            return
        freed = sum(job.pool == pool for job in jobs)
        async with self._turn:
            queue.rounds += 1
            queue.is_idle = False
            asked = queue.ask(self._attempts.free_slots(pool) + freed, is_dear=self._is_dear)
            try:
                yield asked
            finally:
                if asked.answer is None:
                    queue.wake()
            if asked.answer is not None:
                await self._await_room(pool, len(asked.answer.jobs))
                if self._take(asked, asked.answer):
                    queue.wake()

    async def _await_room(self, pool: Pool, slots: int) -> None:
        """An end that had to be written by itself gives its slot back a moment later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ROOM_SECONDS):
                while self._attempts.free_slots(pool) < slots:
                    self._freed.clear()
                    await self._freed.wait()

    def _take(self, asked: Asked, claim: Claim) -> bool:
        """Start what was claimed. Returns whether there is more to claim."""
        more = self._learn(asked, claim)
        self._start(asked.queue.pool, claim.jobs, more_follow=len(claim.jobs) == asked.wanted.slots)
        return more

    def _learn(self, asked: Asked, claim: Claim) -> bool:
        if self._meter is not None:
            self._meter.claimed(asked.queue.pool, claim.jobs, time.monotonic() - asked.at)
        if claim.jobs:
            failpoint(Failpoint.CLAIMED)
        return asked.queue.learn(asked, claim)

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

    async def release_unknown(self) -> Released:
        """Give back what a claim took although its answer never arrived; one that is on its way is waited for."""
        async with self._turn:
            return await self._recovery.release_unknown(self._worker_id, self._attempts.fences)
