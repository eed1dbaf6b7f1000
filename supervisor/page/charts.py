"""Which pictures are made of what the database tells."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from markupsafe import Markup

from jobs.activity import PEAK_BOUNDS_MB, ActivityPoint
from jobs.finding import JobRow
from jobs.outcome import Verdict
from jobs.reports import AttemptRow
from supervisor.page import pictures
from supervisor.page.pictures import Column, Curve, Stretch

MAX_POINTS = 180  # of one picture: 3 hours by minute, or a week by hour
MAX_STRETCHES = 20  # attempts of one time line, the newest


def merged(points: Sequence[ActivityPoint]) -> list[ActivityPoint]:
    """The same in `MAX_POINTS` spans at most: a picture has no room for more."""
    several = -(-len(points) // MAX_POINTS) or 1
    return [_together(points[index : index + several]) for index in range(0, len(points), several)]


def rates(points: Sequence[ActivityPoint]) -> Markup:
    """How many attempts ended, and how."""
    return pictures.columns(
        [Column(point.at, point.succeeded, point.failed - (kills := _kills(point)), kills) for point in points],
        title="Attempts that ended",
    )


def waits(points: Sequence[ActivityPoint]) -> Markup:
    """How long jobs had been due when they were claimed."""
    return _percentiles(points, "Wait", [point.wait(0.5) for point in points], [point.wait(0.95) for point in points])


def runs(points: Sequence[ActivityPoint]) -> Markup:
    """How long attempts ran."""
    return _percentiles(points, "Run", [point.run(0.5) for point in points], [point.run(0.95) for point in points])


def memory(points: Sequence[ActivityPoint]) -> Markup | None:
    """How much memory attempts with a process of their own used; None where there were none."""
    sums = _sums([point.peaks for point in points])
    if not any(sums):
        return None
    limit = next((point.limit_mb for point in reversed(points) if point.limit_mb is not None), None)
    return pictures.peaks(PEAK_BOUNDS_MB, sums, limit, title="Peak memory")


def attempts(job: JobRow, rows: Sequence[AttemptRow], now: datetime) -> Markup | None:
    """What happened to a job; None where nothing has yet."""
    stretches = [
        Stretch(f"{row.attempt}: {row.verdict}", _style(row), row.started_at, row.finished_at)
        for row in reversed(rows[:MAX_STRETCHES])
        if row.started_at is not None
    ]
    if job.started_at is not None and job.status in ("running", "succeeded"):
        end = job.finished_at or now
        stretches.append(
            Stretch(f"{job.attempt}: {job.status}", "bar" if job.status == "running" else "good", job.started_at, end)
        )
    if not stretches:
        return None
    begin = min([job.created_at, *(stretch.start for stretch in stretches)])
    if len(rows) > MAX_STRETCHES:
        begin = stretches[0].start
    return pictures.time_line(stretches, begin, max(stretch.end for stretch in stretches))


def _together(points: Sequence[ActivityPoint]) -> ActivityPoint:
    if len(points) == 1:
        return points[0]
    attempts = Counter[Verdict]()
    for point in points:
        attempts.update(point.attempts)
    known_limits = [point.limit_mb for point in points if point.limit_mb is not None]
    return ActivityPoint(
        at=points[0].at,
        seconds=sum(point.seconds for point in points),
        attempts=attempts,
        waits=_sums([point.waits for point in points]),
        runs=_sums([point.runs for point in points]),
        peaks=_sums([point.peaks for point in points]),
        peak_mb=max((point.peak_mb for point in points if point.peak_mb is not None), default=None),
        limit_mb=known_limits[-1] if known_limits else None,
    )


def _sums(histograms: Sequence[Sequence[int]]) -> list[int]:
    """Of histograms by the same bounds; one that counted nothing may be empty."""
    return [sum(counts) for counts in zip(*(each for each in histograms if each), strict=False)]


def _percentiles(
    points: Sequence[ActivityPoint], name: str, half: Sequence[float | None], most: Sequence[float | None]
) -> Markup:
    curves = [Curve("half of them below", "", half), Curve("95 in 100 below", "high", most)]
    return pictures.curves([point.at for point in points], curves, title=name)


def _kills(point: ActivityPoint) -> int:
    return sum(count for verdict, count in point.attempts.items() if verdict.is_kill)


def _style(row: AttemptRow) -> str:
    if row.is_kill:
        return "kill"
    return "bad" if row.charged and row.verdict != Verdict.CANCELLED else "soft"
