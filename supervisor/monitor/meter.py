"""What a worker counts as it works: on the loop only, without locks.

A batch is timed and counted as one; of a success no more is done than to keep its time.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from jobs.activity import JOB_BOUNDS, PEAK_BOUNDS_MB
from jobs.claim import ClaimedJob
from jobs.outcome import AttemptReport, Verdict
from jobs.retention import Step
from jobs.task import Pool
from supervisor.monitor.histogram import Histogram

CALL_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)  # the bound of a call is 10 s
LAG_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
MAX_KINDS = 500  # an app's own are known; those of lost workers' jobs may be anybody's
FOLD = 500  # successes of a kind that are counted together
OTHER = "(other)"  # the kinds beyond that, together


# What only the end of a child is judged to be.
OF_CHILDREN = frozenset(
    {
        Verdict.MEMORY_EXCEEDED,
        Verdict.OOM_KILLED,
        Verdict.KILLED,
        Verdict.CRASHED,
        Verdict.EXITED,
        Verdict.VANISHED,
        Verdict.SPAWN_FAILED,
    }
)


class KindSeries:
    """Of one kind; `child` where its attempts have one. `dead` are jobs, all else is of attempts.

    What can happen is told from the start: a rate needs the zero before the first, and five kills, which pause a kind,
    may all come between two scrapes. What has succeeded waits in `succeeded_in`, as seconds, to be counted together:
    `fold` before a look. `peaks` are of attempts with a child. Of these, `peak_mb` is the largest since somebody took
    it.
    """

    __slots__ = ("dead", "limit_mb", "peak_mb", "peaks", "runs", "succeeded", "succeeded_in", "verdicts", "waits")

    def __init__(self, *, child: bool = False) -> None:
        self.waits = Histogram(JOB_BOUNDS)
        self.runs = Histogram(JOB_BOUNDS)
        self.succeeded = 0  # apart from the others, because to look up an enum costs as much as all the rest
        self.succeeded_in: list[float] = []
        self.verdicts: dict[Verdict, int] = {
            verdict: 0
            for verdict in Verdict
            if verdict is not Verdict.SUCCEEDED and (child or verdict not in OF_CHILDREN)
        }
        self.dead = 0
        self.peaks: Histogram | None = None
        self.peak_mb: float | None = None
        self.limit_mb: int | None = None

    def fold(self) -> None:
        """Count what has succeeded since the last time."""
        self.runs.observe_all(self.succeeded_in)
        self.succeeded += len(self.succeeded_in)
        self.succeeded_in.clear()

    def used_memory(self, peak_mb: float, limit_mb: int | None) -> None:
        if self.peaks is None:
            self.peaks = Histogram(PEAK_BOUNDS_MB)
        self.peaks.observe(peak_mb)
        self.put_back_peak(peak_mb)
        self.limit_mb = limit_mb

    def take_peak(self) -> float | None:
        """The largest peak since it was last taken."""
        taken, self.peak_mb = self.peak_mb, None
        return taken

    def put_back_peak(self, peak_mb: float | None) -> None:
        if peak_mb is not None:
            self.peak_mb = max(peak_mb, self.peak_mb or 0.0)


class Meter:
    """One for the life of the process: for these kinds of each pool that is served.

    `clock_offset` is how many seconds the database's clock is ahead.
    """

    def __init__(self, kinds: Mapping[Pool, Iterable[str]]) -> None:
        self.clock_offset = 0.0
        self.kinds = {
            kind: KindSeries(child=pool is Pool.INGEST) for pool, of_pool in kinds.items() for kind in of_pool
        }
        self.claims = {pool: Histogram(CALL_BOUNDS) for pool in kinds}
        self.writes = Histogram(CALL_BOUNDS)
        self.lag = Histogram(LAG_BOUNDS)
        self.jobs_removed = Counter(succeeded=0, dead=0, cancelled=0)
        self.records_removed = Counter(background_attempts=0, background_notices=0, background_audit=0)

    def claimed(self, pool: Pool, jobs: Sequence[ClaimedJob], seconds: float) -> None:
        """A claim took so long and came back with these."""
        self.claims[pool].observe(seconds)
        now = time.time() + self.clock_offset
        waits: defaultdict[str, list[float]] = defaultdict(list)
        for job in jobs:
            waits[job.kind].append(now - job.run_after)
        for kind, waited in waits.items():
            self.kinds[kind].waits.observe_all(waited)

    def ended(self, job: ClaimedJob, report: AttemptReport, seconds: float) -> None:
        """An attempt that was claimed so long ago has ended."""
        series, verdict = self.kinds[job.kind], report.outcome.verdict
        if verdict is Verdict.SUCCEEDED:
            series.succeeded_in.append(seconds)
            if len(series.succeeded_in) >= FOLD:
                series.fold()
        else:
            series.runs.observe(seconds)
            series.verdicts[verdict] = series.verdicts.get(verdict, 0) + 1
        process = report.process
        if process.peak_memory_mb is not None:
            series.used_memory(process.peak_memory_mb, process.memory_limit_mb)

    def settled(self, kind: str, verdict: Verdict) -> None:
        """An attempt ended that did not run here, or never ran."""
        verdicts = self._series(kind).verdicts
        verdicts[verdict] = verdicts.get(verdict, 0) + 1

    def died(self, kind: str) -> None:
        """A job is dead."""
        self._series(kind).dead += 1

    def wrote(self, seconds: float) -> None:
        """One statement with outcomes took so long."""
        self.writes.observe(seconds)

    def removed(self, step: Step) -> None:
        """Retention took a step here."""
        self.jobs_removed.update(step.jobs)
        self.records_removed.update(step.records)

    def lagged(self, seconds: float) -> None:
        """The loop came so late to what it was asked to do at once."""
        self.lag.observe(seconds)

    def _series(self, kind: str) -> KindSeries:
        if kind not in self.kinds and len(self.kinds) >= MAX_KINDS:
            kind = OTHER
        return self.kinds.setdefault(kind, KindSeries())
