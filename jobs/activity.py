"""What happened over time: attempts by verdict, waits and runs, memory, by minute and by quarter of an hour.

Successes leave no attempt behind, so workers count this as they work (`supervisor/monitor/`) and add it up in
`background_activity`, every ten seconds: what one has counted since is lost if it is killed. An attempt belongs to the
span in which that was written, some seconds after its end.

Read on any connection, like `jobs.reports`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from jobs.connection import Program, Statement, run
from jobs.outcome import Verdict
from jobs.sql import statement

# Upper bounds, inclusive; a histogram has one count more, for what is above them all. Rows that are kept were counted
# by these: whoever changes them empties the table in a migration.
JOB_BOUNDS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)  # seconds: interactive to an hour's
PEAK_BOUNDS_MB = (
    *(16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096),
    *(6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536),
)
VERDICTS = tuple(Verdict)  # in the order of the arrays; a new verdict joins at the end
FAILURES = (
    frozenset(Verdict)
    - {verdict for verdict in Verdict if not verdict.is_charged}
    - {
        Verdict.SUCCEEDED,
        Verdict.CANCELLED,
    }
)

MINUTE, QUARTER = 60, 900  # seconds
KEPT = {MINUTE: timedelta(hours=6), QUARTER: timedelta(days=7)}
MINUTES_SHOWN = timedelta(hours=3)  # a longer look is told by quarters of an hour
ALL_KINDS = ""


@dataclass(frozen=True, slots=True)
class ActivityPoint:
    """What happened in the `seconds` from `at` on. `limit_mb` is what the last attempt with a child might use."""

    at: datetime
    seconds: int
    attempts: Mapping[Verdict, int]
    waits: Sequence[int]
    runs: Sequence[int]
    peaks: Sequence[int]
    peak_mb: float | None
    limit_mb: int | None

    @property
    def succeeded(self) -> int:
        return self.attempts.get(Verdict.SUCCEEDED, 0)

    @property
    def failed(self) -> int:
        """Attempts that were spent in vain. Neither those that were cancelled nor those that were given back."""
        return sum(count for verdict, count in self.attempts.items() if verdict in FAILURES)

    def wait(self, share: float) -> float | None:
        """For how many seconds that share of the jobs, such as 0.95, had been due at most when they were claimed."""
        return percentile(self.waits, JOB_BOUNDS, share)

    def run(self, share: float) -> float | None:
        """For how many seconds that share of the attempts ran at most."""
        return percentile(self.runs, JOB_BOUNDS, share)

    def memory_mb(self, share: float) -> float | None:
        """How much memory that share of the attempts used at most."""
        return percentile(self.peaks, PEAK_BOUNDS_MB, share)


def activity(db: Any, *, kind: str | None = None, span: timedelta = MINUTES_SHOWN) -> Any:
    """The newest `span` of one kind, or of all together: a list of `ActivityPoint`, oldest first and without gaps.

    By minute up to three hours, else by quarter of an hour; there is nothing that is older than a week.
    """
    seconds = MINUTE if span <= MINUTES_SHOWN else QUARTER
    points = -(-min(span, KEPT[seconds]) // timedelta(seconds=seconds))
    return run(db, _activity(ALL_KINDS if kind is None else kind, seconds, max(1, points)))


def percentile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """The value that `share` of what a histogram counted does not exceed, as near as its bounds tell; None without any.

    Within a bucket, values are taken to be spread evenly. What is above all bounds is told as the last of them.
    """
    total = sum(counts)
    if not total:
        return None
    wanted = share * total
    for index, below in enumerate(accumulate(counts)):
        if below >= wanted and counts[index]:
            if index >= len(bounds):
                return bounds[-1]
            lower = bounds[index - 1] if index else 0.0
            return lower + (bounds[index] - lower) * (1 - (below - wanted) / counts[index])
    return bounds[-1]


def by_verdict(counts: Sequence[int]) -> dict[Verdict, int]:
    """An array of the table as what it means, without zeros."""
    return {verdict: count for verdict, count in zip(VERDICTS, counts, strict=False) if count}


def _activity(kind: str, seconds: int, points: int) -> Program[list[ActivityPoint]]:
    rows = yield Statement(statement("read_activity"), {"kind": kind, "seconds": seconds, "points": points})
    return [
        ActivityPoint(at, seconds, by_verdict(verdicts), waits, runs, peaks, peak_mb, limit_mb)
        for at, verdicts, waits, runs, peaks, peak_mb, limit_mb in rows
    ]
