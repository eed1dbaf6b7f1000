"""What every worker does for all of them, once a second, where there is anything to do: see `jobs.recovery`."""

import logging
import time
from collections.abc import Callable

from jobs.recovery import Recovery
from supervisor.attempts import Attempts
from supervisor.tenure import Tenure

log = logging.getLogger("oomph.rescue")

CLEAN_UP_SECONDS = 1.0  # a lost worker's jobs move on within a second after its lease, while asking for them is cheap


class CleanUp:
    """`tenure()` is the worker's present one."""

    def __init__(self, recovery: Recovery, attempts: Attempts, tenure: Callable[[], Tenure]) -> None:
        self._recovery = recovery
        self._attempts = attempts
        self._tenure = tenure
        self._lost: list[tuple[Tenure, float]] = []  # of this process, and until when they are looked after
        self._rescue_from = 0.0
        self._rescue_own_from = 0.0
        self._told = ""

    def spare_the_lost(self, own: Tenure, seconds: float) -> None:
        """Rescue nobody for that long: they may come back and settle their jobs themselves, as is done for `own`.

        For as long again, what this process itself still offers the refund of is left alone.
        """
        self._rescue_from = time.monotonic() + seconds
        self._rescue_own_from = self._rescue_from + seconds
        self._lost.append((own, self._rescue_from))

    @property
    def lost(self) -> list[Tenure]:
        """Those of this process that jobs may still have to be given back for."""
        return [tenure for tenure, _ in self._lost]

    async def run_once(self) -> float:
        """One pass. Returns the seconds until the next; raises `DatabaseUnavailable`."""
        tenure, now = self._tenure(), time.monotonic()
        chores = await self._recovery.chores(tenure.worker_id)
        pause = max(CLEAN_UP_SECONDS, tenure.claims.pause_after(time.monotonic() - now))
        tenure.claims.workers_are(chores.workers)
        for each in list(self._lost):
            lost, until = each
            if now >= (until if await self._releases_unknown(lost) else self._rescue_own_from):
                self._lost.remove(each)
        if chores.running > self._attempts.under_lease:
            await self._releases_unknown(tenure)
        if chores.blocked:
            await self._recovery.sweep_blocked()
        if chores.unknown:
            await self._recovery.bury_unknown()
        if chores.lost and now >= self._rescue_from and tenure.keeper.trusted:
            await self._recovery.rescue(self._attempts.fences if now < self._rescue_own_from else ())
        if chores.old:
            await self._recovery.forget_workers()
        return pause

    async def _releases_unknown(self, tenure: Tenure) -> bool:
        """What a claim took whose answer never arrived: a rescue would charge it. Returns whether nothing is left."""
        number, trouble = await tenure.claims.release_unknown()
        if number:
            self._tenure().claims.wake_all()
        if trouble is not None and (why := f"{type(trouble).__name__}: {trouble}") != self._told:
            log.warning("worker %s: claims whose answer is not known are not given back yet: %s", tenure.worker_id, why)
            self._told = why
        return trouble is None
