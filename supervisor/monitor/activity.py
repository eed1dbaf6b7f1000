"""Writes what the meter has counted into the database, for all workers to add up: see `jobs.activity`.

Every ten seconds, and only where something happened or the worker has changed: an idle one writes nothing. While the
database is away the counts are kept, which takes no more memory than the kinds do; they then belong to the minute in
which they are written. A worker that is killed takes with it what it has counted since.
"""

import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from uuid import UUID

from jobs.activity import ALL_KINDS, VERDICTS
from jobs.database import Database
from jobs.outcome import Verdict
from jobs.worker_report import Counts, WorkerState, prune_activity, write_report
from supervisor.monitor.condition import is_news
from supervisor.monitor.meter import KindSeries, Meter

WRITE_SECONDS = 10.0
PRUNE_SECONDS = 60.0

Snapshot = tuple[Sequence[int], ...]  # verdicts, waits, runs, peaks


class ActivityWriter:
    """One for the life of the process. `look()` tells how the worker is, `worker_id()` who it is at present."""

    def __init__(
        self, database: Database, meter: Meter, look: Callable[[], WorkerState], worker_id: Callable[[], UUID]
    ) -> None:
        self._database = database
        self._meter = meter
        self._look = look
        self._worker_id = worker_id
        self._written: dict[str, Snapshot] = {}
        self._told: tuple[UUID, WorkerState] | None = None
        self._prune_at = time.monotonic() + PRUNE_SECONDS

    async def run_once(self) -> float:
        """Write what is new. Returns the seconds until the next time; raises `DatabaseUnavailable`."""
        kinds, worker_id, state = self._meter.kinds, self._worker_id(), self._look()
        now = {kind: _snapshot(series) for kind, series in kinds.items()}
        happened = {kind: counts for kind, counts in now.items() if counts != self._written.get(kind, NOTHING)}
        if not happened and not self._is_news(worker_id, state):
            return WRITE_SECONDS
        peaks = {kind: kinds[kind].take_peak() for kind in happened}
        counts = [
            _counts(kind, _since(self._written.get(kind, NOTHING), snapshot), peaks[kind], kinds[kind].limit_mb)
            for kind, snapshot in happened.items()
        ]
        try:
            offset = await write_report(self._database, worker_id, [*counts, *_together(counts)], state)
        except BaseException:
            for kind, peak_mb in peaks.items():
                kinds[kind].put_back_peak(peak_mb)
            raise
        self._meter.clock_offset = offset
        self._written |= happened
        self._told = worker_id, state
        await self._prune()
        return WRITE_SECONDS

    def _is_news(self, worker_id: UUID, state: WorkerState) -> bool:
        return self._told is None or self._told[0] != worker_id or is_news(state, self._told[1])

    async def _prune(self) -> None:
        if time.monotonic() >= self._prune_at:
            self._prune_at = time.monotonic() + PRUNE_SECONDS
            await prune_activity(self._database)


def _snapshot(series: KindSeries) -> Snapshot:
    series.fold()
    succeeded, verdicts = series.succeeded, series.verdicts
    return (
        [succeeded if verdict is Verdict.SUCCEEDED else verdicts.get(verdict, 0) for verdict in VERDICTS],
        [*series.waits.counts],
        [*series.runs.counts],
        [] if series.peaks is None else [*series.peaks.counts],
    )


NOTHING = _snapshot(KindSeries())


def _since(before: Snapshot, now: Snapshot) -> Snapshot:
    return tuple(
        [count - earlier for count, earlier in zip_longest(counts, earlier_counts, fillvalue=0)]
        for counts, earlier_counts in zip(now, before, strict=True)
    )


def _counts(kind: str, since: Snapshot, peak_mb: float | None = None, limit_mb: int | None = None) -> Counts:
    verdicts, waits, runs, peaks = since
    return Counts(kind=kind, verdicts=verdicts, waits=waits, runs=runs, peaks=peaks, peak_mb=peak_mb, limit_mb=limit_mb)


def _together(counts: Sequence[Counts]) -> list[Counts]:
    """All kinds as one, but for their memory: limits differ."""
    if not counts:
        return []
    columns = zip(*((each.verdicts, each.waits, each.runs) for each in counts), strict=True)
    added = [[sum(values) for values in zip(*column, strict=True)] for column in columns]
    return [_counts(ALL_KINDS, (*added, []))]
