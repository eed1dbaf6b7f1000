"""The claims: one task a pool takes due jobs, as many as it has free slots, and starts them.

A pool is woken by a notification, a freed slot, the moment the next known job is due, or what a look at the queue has
found; one look a second serves all pools, and an idle worker claims nothing. Claims of all pools take turns on one
lock, so that "every claim of this worker that is known" has a meaning: a claim whose answer was lost is found by
comparing under that lock.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

from jobs.app import App
from jobs.failpoints import Failpoint, failpoint
from jobs.outcome import Verdict
from jobs.recovery import Recovery
from jobs.store import ClaimedJob, JobStore, Mark
from jobs.task import Pool
from supervisor.attempts import Attempts

MAX_BATCH = 333  # jobs a claim: with more of them, the first wait longer and nothing is gained
MIN_BATCH = 20  # with so few slots a claim takes all that are free
BATCHES = 3  # in the slots at once: one is claimed while one runs and one is written
MARK_SECONDS = 1.0  # the longest that a job which comes back to an earlier place is passed over
TIMER_SECONDS = 0.001  # after the moment that the database named: a timer may fire a little early
IDLE_HORIZON = 300.0  # the longest back-off: what is due later than that is somebody's plan, not work in progress


class _Marks:
    """How far one pool's claims have come while the queue is longer than they take.

    What finished jobs leave in the index is walked over by every claim that starts at the queue's head, for as long as
    anybody's old snapshot can see them. So claims that follow each other go on where the last one ended. A job that
    comes to an earlier place meanwhile is found when the marks are dropped: after a second, and after a claim that was
    not full.
    """

    def __init__(self) -> None:
        self._marks: dict[tuple[str, int], Mark] = {}
        self._since = 0.0

    def current(self) -> Collection[Mark]:
        if self._marks and time.monotonic() - self._since > MARK_SECONDS:
            self.forget()
        return self._marks.values()

    def move(self, claimed: Sequence[ClaimedJob]) -> None:
        if not self._marks:
            self._since = time.monotonic()
        last = {(job.kind, job.priority): job for job in claimed}  # they are in the queue's order
        for place, job in last.items():
            self._marks[place] = Mark(job.kind, job.priority, job.run_after, job.id)

    def forget(self) -> None:
        self._marks = {}


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
        self._wake = {pool: asyncio.Event() for pool in pools}
        for event in self._wake.values():
            event.set()
        self._probe = dict.fromkeys(pools, True)
        self._turn = asyncio.Lock()
        self._idle: dict[Pool, bool] = dict.fromkeys(pools, False)
        self._short_of_slots = dict.fromkeys(pools, False)
        self._timers: dict[Pool, asyncio.TimerHandle] = {}
        self._marks: dict[Pool, _Marks] = {pool: _Marks() for pool in pools}

    def wake(self, pool: Pool) -> None:
        """Look at the queue of this pool now."""
        if (event := self._wake.get(pool)) is not None:
            event.set()

    def slot_freed(self, pool: Pool, gone: bool) -> None:
        """One more job of this pool may run: look at its queue, if it was longer than the slots or the job is back."""
        if not gone or self._short_of_slots[pool]:
            self.wake(pool)

    def wake_all(self) -> None:
        """Look at all queues now, also for probes of paused kinds."""
        for pool, event in self._wake.items():
            self._probe[pool] = True
            event.set()

    @property
    def idle(self) -> bool:
        """Whether the last look of every pool found nothing due and nothing that a back-off will make due soon."""
        at_rest = not self._turn.locked() and not any(event.is_set() for event in self._wake.values())
        return at_rest and all(self._idle.values())

    async def claim_once(self, pool: Pool) -> float:
        """Wait until the pool is woken; take and start what is due and fits. Returns 0: there is no pause."""
        event = self._wake[pool]
        await event.wait()
        while event.is_set():  # without a pause: the next claim goes out before the handlers of the last take the loop
            event.clear()
            await self._claim_what_fits(pool, event)
        return 0

    async def _claim_what_fits(self, pool: Pool, event: asyncio.Event) -> None:
        self._idle[pool] = not self._kinds[pool]
        slots = min(self._attempts.free_slots(pool), self._batch[pool])
        self._short_of_slots[pool] = slots <= 0
        if not (self._may_claim() and self._ready[pool]() and slots > 0):
            return  # a freed slot wakes it, and the look does once a second
        try:
            taken, more = await self._claim(pool, slots)
            if more or taken == slots:
                event.set()  # if only to find that no slot is free
            else:
                await asyncio.sleep(0)  # what was taken runs first
                await self._look([pool], claim_due=taken > 0)  # what is due and was not taken, somebody holds
        except BaseException:
            event.set()
            raise

    async def look_once(self) -> float:
        """Look at what waits, for everything that no notification tells: times, pauses, lost connections."""
        await self._look(list(self._wake), claim_due=True)
        return self._poll * random.uniform(0.9, 1.0)  # a fleet does not look in one moment

    async def _look(self, pools: Sequence[Pool], *, claim_due: bool) -> None:
        kinds = [kind for pool in pools for kind in self._kinds[pool]]
        if not kinds or not self._may_claim():
            return
        waiting = await self._store.look(kinds)
        for pool in pools:
            if self._wake[pool].is_set():
                continue  # something has come since: the next claim looks again
            ours = [found for found in waiting if found.kind in self._kinds[pool]]
            first = min((found.due_in for found in ours), default=math.inf)
            self._idle[pool] = first > IDLE_HORIZON
            self._probe[pool] = self._probe[pool] or any(found.probe for found in ours)
            if (timer := self._timers.pop(pool, None)) is not None:
                timer.cancel()
            if first <= 0:
                if claim_due:
                    self.wake(pool)
            elif first < self._poll:
                self._timers[pool] = asyncio.get_running_loop().call_later(first + TIMER_SECONDS, self.wake, pool)

    async def _claim(self, pool: Pool, slots: int) -> tuple[int, bool]:
        async with self._turn:
            kinds = self._kinds[pool]
            marks = self._marks[pool]
            used = marks.current()
            claim = await self._store.claim(self._worker_id, pool, kinds, slots, used)
            if claim.jobs:
                failpoint(Failpoint.CLAIMED)
            taken = len(claim.jobs)
            self._start(pool, claim.jobs, more_follow=taken == slots)
            if taken == slots:
                marks.move(claim.jobs)
            else:
                marks.forget()
                if used:  # there may be something before them
                    return taken, True
            if self._probe[pool] and taken < slots:
                probes = await self._store.claim_probe(self._worker_id, pool, kinds)
                if probes:
                    failpoint(Failpoint.PROBE_CLAIMED)
                self._start(pool, probes)
                taken += len(probes)
                self._probe[pool] = False
        return taken, claim.parked > 0

    def _start(self, pool: Pool, jobs: Sequence[ClaimedJob], *, more_follow: bool = False) -> None:
        if not self._trusted():
            self._give_back(jobs, Verdict.LEASE_LOST, "the lease was lost during the claim")
        elif not self._may_claim():
            self._give_back(jobs, Verdict.RELEASED, "the shutdown began during the claim")
        elif jobs:
            self._attempts.start(pool, jobs, self._trusted, more_follow=more_follow)

    def _give_back(self, jobs: Sequence[ClaimedJob], verdict: Verdict, why: str) -> None:
        for job in jobs:
            self._attempts.give_back(job, self._trusted, verdict, why)

    async def release_unknown(self) -> int:
        """Give back what a claim of this worker took although its answer never arrived; one on its way is waited for.

        Raises `DatabaseUnavailable`.
        """
        async with self._turn:
            return await self._recovery.release_unknown(self._worker_id, self._attempts.fences)
