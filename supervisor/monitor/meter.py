"""What a worker counts as it works: on the loop only, without locks, and only where somebody may ask for it.

A batch is timed as one; of each job no more is done than two additions to a histogram and one to a counter.
"""

import time
from collections.abc import Iterable, Sequence

from jobs.outcome import Verdict
from jobs.store import ClaimedJob
from jobs.task import Pool
from supervisor.monitor import catalog
from supervisor.monitor.exposition import Histogram, Page

JOB_BOUNDS = (
    0.005,
    0.025,
    0.1,
    0.5,
    1.0,
    5.0,
    15.0,
    60.0,
    300.0,
    900.0,
    3600.0,
)  # an interactive job to an hour's work
CALL_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)  # the bound of a call is 10 s
LAG_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
MAX_KINDS = 500  # an app's own are known; those of lost workers' jobs may be anybody's
OTHER = "(other)"  # the kinds beyond that, together


class KindSeries:
    """Of one kind. What is sure to happen is told from the start: a rate needs the zero before the first."""

    __slots__ = ("runs", "succeeded", "verdicts", "waits")

    def __init__(self) -> None:
        self.waits = Histogram(JOB_BOUNDS)
        self.runs = Histogram(JOB_BOUNDS)
        self.succeeded = 0  # apart from the others, because to look up an enum costs as much as all the rest
        self.verdicts = {Verdict.FAILED: 0}


class Meter:
    """One for the life of the process. `clock_offset` is how many seconds the database's clock is ahead."""

    def __init__(self, pools: Iterable[Pool], kinds: Iterable[str]) -> None:
        self.clock_offset = 0.0
        self._kinds = {kind: KindSeries() for kind in kinds}
        self._claims = {pool: Histogram(CALL_BOUNDS) for pool in pools}
        self._writes = Histogram(CALL_BOUNDS)
        self._lag = Histogram(LAG_BOUNDS)

    def claimed(self, pool: Pool, jobs: Sequence[ClaimedJob], seconds: float) -> None:
        """A claim took so long and came back with these."""
        self._claims[pool].observe(seconds)
        now, kinds = time.time() + self.clock_offset, self._kinds
        for job in jobs:
            waited = now - job.run_after
            kinds[job.kind].waits.observe(max(0.0, waited))

    def ended(self, job: ClaimedJob, verdict: Verdict, seconds: float) -> None:
        """An attempt that was claimed so long ago has ended."""
        series = self._kinds[job.kind]
        series.runs.observe(seconds)
        if verdict is Verdict.SUCCEEDED:
            series.succeeded += 1
        else:
            series.verdicts[verdict] = series.verdicts.get(verdict, 0) + 1

    def settled(self, kind: str, verdict: Verdict) -> None:
        """An attempt ended that did not run here, or never ran."""
        verdicts = self._series(kind).verdicts
        verdicts[verdict] = verdicts.get(verdict, 0) + 1

    def wrote(self, seconds: float) -> None:
        """One statement with outcomes took so long."""
        self._writes.observe(seconds)

    def lagged(self, seconds: float) -> None:
        """The loop came so late to what it was asked to do at once."""
        self._lag.observe(seconds)

    def tell(self, page: Page) -> None:
        """All of it."""
        kinds = sorted(self._kinds.items())
        verdicts = [
            ((kind, verdict), count)
            for kind, series in kinds
            for verdict, count in ((Verdict.SUCCEEDED, series.succeeded), *series.verdicts.items())
        ]
        page.add(catalog.ATTEMPTS, verdicts)
        page.add_histograms(catalog.RUN, [((kind,), series.runs) for kind, series in kinds])
        page.add_histograms(catalog.WAIT, [((kind,), series.waits) for kind, series in kinds])
        page.add_histograms(catalog.CLAIM, [((pool,), claims) for pool, claims in self._claims.items()])
        page.add_histograms(catalog.OUTCOME, [((), self._writes)])
        page.add_histograms(catalog.LOOP_LAG, [((), self._lag)])

    def _series(self, kind: str) -> KindSeries:
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            kind = OTHER
        return self._kinds.setdefault(kind, KindSeries())
