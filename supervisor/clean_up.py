"""What every worker does for all of them, once a second, where there is anything to do: see `jobs.recovery`."""

import time
from collections.abc import Callable
from contextlib import suppress

from jobs.recovery import Recovery
from jobs.unavailable import Locked
from supervisor.attempts import Attempts
from supervisor.tenure import Tenure

CLEAN_UP_SECONDS = 1.0  # a lost worker's jobs move on within a second after its lease, while asking for them is cheap


class CleanUp:
    """`tenure()` is the worker's present one."""

    def __init__(self, recovery: Recovery, attempts: Attempts, tenure: Callable[[], Tenure]) -> None:
        self._recovery = recovery
        self._attempts = attempts
        self._tenure = tenure
        self._rescue_from = 0.0
        self._lost: list[Tenure] = []

    def spare_the_lost(self, own: Tenure, seconds: float) -> None:
        """Rescue nobody for that long: they may come back and settle their jobs themselves, as is done for `own`."""
        self._lost.append(own)
        self._rescue_from = time.monotonic() + seconds

    async def run_once(self) -> float:
        """One pass. Returns the seconds until the next; raises `DatabaseUnavailable`."""
        tenure = self._tenure()
        asked_at = time.monotonic()
        chores = await self._recovery.chores(tenure.worker_id)
        pause = max(CLEAN_UP_SECONDS, tenure.claims.pause_after(time.monotonic() - asked_at))
        tenure.claims.workers_are(chores.workers)
        await self._release_what_never_began()
        if chores.blocked:
            await self._recovery.sweep_blocked()
        if chores.unknown:
            await self._recovery.bury_unknown()
        if chores.lost and time.monotonic() >= self._rescue_from and tenure.keeper.trusted:
            await self._recovery.rescue(self._attempts.fences)
        if chores.old:
            await self._recovery.forget_workers()
        if chores.running > self._attempts.under_lease:
            await tenure.claims.release_unknown()
        return pause

    async def _release_what_never_began(self) -> None:
        """What a claim took under a lost lease of this process, unheard: a rescue would have to charge it."""
        is_over = time.monotonic() >= self._rescue_from
        for tenure in self._lost:
            with suppress(Locked):
                await tenure.claims.release_unknown()
        if is_over:
            self._lost.clear()
