"""What every worker does for all of them, once a second, where there is anything to do: see `jobs.recovery`."""

import logging
import time
from collections.abc import Callable

import psycopg

from jobs.recovery import Recovery
from jobs.unavailable import DatabaseUnavailable
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
        tenure = self._tenure()
        asked_at = time.monotonic()
        chores = await self._recovery.chores(tenure.worker_id)
        pause = max(CLEAN_UP_SECONDS, tenure.claims.pause_after(time.monotonic() - asked_at))
        tenure.claims.workers_are(chores.workers)
        await self._look_after_the_lost(tenure)
        if chores.blocked:
            await self._recovery.sweep_blocked()
        if chores.unknown:
            await self._recovery.bury_unknown()
        if chores.lost and (now := time.monotonic()) >= self._rescue_from and tenure.keeper.trusted:
            await self._recovery.rescue(self._attempts.fences if now < self._rescue_own_from else ())
        if chores.old:
            await self._recovery.forget_workers()
        if chores.running > self._attempts.under_lease:
            await tenure.claims.release_unknown()
        return pause

    async def _look_after_the_lost(self, present: Tenure) -> None:
        """What a claim took under a lost lease of this process, unheard: a rescue would have to charge it."""
        now = time.monotonic()
        for tenure in self.lost:
            try:
                if await tenure.claims.release_unknown():
                    present.claims.wake_all()
            except DatabaseUnavailable as error:  # a lock that somebody holds; or all else will meet it too
                log.info("worker %s: what it claimed unheard is left to the next pass: %s", tenure.worker_id, error)
            except psycopg.Error as error:
                log.error("worker %s: what it claimed unheard cannot be given back: %s", tenure.worker_id, error)
        self._lost = [(tenure, until) for tenure, until in self._lost if until > now]
