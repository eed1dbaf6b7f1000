"""The claims: one task a pool takes due jobs, as many as it has free slots, and starts them.

It waits for the first of: a notification, a freed slot, the moment the next known job is due, the poll. Claims of all
pools take turns on one lock, so that "every claim of this worker that is known" has a meaning: a claim whose answer
was lost is found by comparing under that lock.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from jobs.app import App
from jobs.failpoints import Failpoint, failpoint
from jobs.outcome import Verdict
from jobs.recovery import Recovery
from jobs.store import ClaimedJob, JobStore
from jobs.task import Pool
from supervisor.attempts import Attempts

IDLE_HORIZON = 300.0  # the longest back-off: what is due later than that is somebody's plan, not work in progress


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
        self._store = store
        self._recovery = recovery
        self._attempts = attempts
        self._trusted = trusted
        self._may_claim = may_claim
        self._ready = ready
        self._poll = poll
        self._wake = {pool: asyncio.Event() for pool in pools}
        self._probe = dict.fromkeys(pools, True)
        self._turn = asyncio.Lock()
        self._idle: dict[Pool, bool] = dict.fromkeys(pools, False)

    def wake(self, pool: Pool) -> None:
        """Look at the queue of this pool now."""
        if (event := self._wake.get(pool)) is not None:
            event.set()

    def wake_all(self) -> None:
        """Look at all queues now, also for probes of paused kinds."""
        for pool, event in self._wake.items():
            self._probe[pool] = True
            event.set()

    @property
    def idle(self) -> bool:
        """Whether the last look of every pool found nothing due and nothing that a back-off will make due soon."""
        return all(self._idle.values()) and not any(event.is_set() for event in self._wake.values())

    async def claim_once(self, pool: Pool) -> float:
        """Take and start what is due and fits. Returns 0: `run_forever` calls again, this waits by itself."""
        event = self._wake[pool]
        event.clear()
        self._idle[pool] = False
        wait = self._poll
        if self._may_claim() and self._ready[pool]() and self._kinds[pool]:
            slots = self._attempts.free_slots(pool)
            if slots > 0:
                taken, more = await self._claim(pool, slots)
                if more or taken == slots:
                    return 0
                due_in = await self._store.next_due(self._kinds[pool])
                self._idle[pool] = taken == 0 and (due_in is None or due_in > IDLE_HORIZON)
                wait = min(wait, max(due_in, 0.0)) if due_in is not None else wait
        else:
            self._idle[pool] = not self._kinds[pool]
        try:
            async with asyncio.timeout(wait):
                await event.wait()
        except TimeoutError:
            self._probe[pool] = True
        return 0

    async def _claim(self, pool: Pool, slots: int) -> tuple[int, bool]:
        async with self._turn:
            kinds = self._kinds[pool]
            claim = await self._store.claim(self._worker_id, pool, kinds, slots)
            if claim.jobs:
                failpoint(Failpoint.CLAIMED)
            for job in claim.jobs:
                self._start(job)
            taken = len(claim.jobs)
            if self._probe[pool] and taken < slots:
                for job in await self._store.claim_probe(self._worker_id, pool, kinds):
                    self._start(job)
                    taken += 1
                self._probe[pool] = False
        return taken, claim.parked > 0

    def _start(self, job: ClaimedJob) -> None:
        if not self._trusted():
            self._attempts.give_back(job, self._trusted, Verdict.LEASE_LOST, "the lease was lost during the claim")
        elif not self._may_claim():
            self._attempts.give_back(job, self._trusted, Verdict.RELEASED, "the shutdown began during the claim")
        else:
            self._attempts.start(job, self._trusted)

    async def release_unknown(self) -> int:
        """Give back what a claim of this worker took although its answer never arrived; one on its way is waited for.

        Raises `DatabaseUnavailable`.
        """
        async with self._turn:
            return await self._recovery.release_unknown(self._worker_id, self._attempts.fences)
