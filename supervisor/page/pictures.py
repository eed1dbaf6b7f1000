"""Pictures as inline SVG, made here: nothing is drawn in the browser, and each says in words what it shows.

Pure functions from figures to markup. Sizes are of the picture's own units; the page stretches it. Colours are classes
of `page.css`, because the page's policy allows no style in place.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from markupsafe import Markup

from supervisor.page.quantities import megabytes, span

WIDTH, HEIGHT = 420, 170
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 12, 22
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
FLOOR = TOP + PLOT_HEIGHT
HOUR_STEPS = (0.25, 0.5, 1, 2, 3, 6, 12, 24, 48)  # between two names of the time axis
LINE_WIDTH = 1000.0  # of a time line's bars
MAX_TIME_NAMES = 6
# What a span is named by on a logarithmic axis, in seconds.
SPANS = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)


class Column(NamedTuple):
    """What ended in one span of time that began `at`: a bar of three parts."""

    at: datetime
    succeeded: int
    failed: int
    killed: int


@dataclass(frozen=True, slots=True)
class Curve:
    """Values at the moments of a picture, None where there is none; `style` is a class of `page.css`."""

    name: str
    style: str
    values: Sequence[float | None]


class Stretch(NamedTuple):
    """A piece of a time line: an attempt, named, from its start to its end."""

    name: str
    style: str
    start: datetime
    end: datetime


class Box(NamedTuple):
    """A filled rectangle, from its upper left corner."""

    x: float
    y: float
    width: float
    height: float


def columns(given: Sequence[Column], *, title: str) -> Markup:
    """How many attempts ended when, and how: bars, one upon the other."""
    totals = [column.succeeded + column.failed + column.killed for column in given]
    top = _round_up(max(totals, default=0) or 1)
    width = PLOT_WIDTH / max(1, len(given))
    parts = _levels(top)
    boxes: dict[str, list[Box]] = {"kill": [], "bad": [], "good": []}
    for index, column in enumerate(given):
        height = 0.0
        for style, count in (("kill", column.killed), ("bad", column.failed), ("good", column.succeeded)):
            if count:
                tall = max(1.0, count / top * PLOT_HEIGHT)
                boxes[style].append(Box(LEFT + index * width, FLOOR - height - tall, max(0.5, width - 0.6), tall))
                height += tall
    parts.extend(_boxes(style, found) for style, found in boxes.items())
    parts.extend(_time_axis([column.at for column in given]))
    ended, failed = sum(totals), sum(column.failed + column.killed for column in given)
    return _picture(parts, f"{title}: {ended:,} attempts ended, {failed:,} of them in vain.")


def curves(moments: Sequence[datetime], given: Sequence[Curve], *, title: str) -> Markup:
    """Spans of time over time, in seconds, on a logarithmic axis: what takes milliseconds and what takes hours."""
    values = [value for curve in given for value in curve.values if value is not None]
    low, high = _span_axis(values)
    levels = [(span(at), _log(at, low, high)) for at in SPANS if low <= at <= high]
    parts = [_line("grid", LEFT, y, WIDTH - RIGHT, y) + _name_left(name, y) for name, y in levels]
    step = PLOT_WIDTH / max(1, len(moments))
    for curve in given:
        for run in _runs(curve.values):
            points = [(LEFT + (index + 0.5) * step, _log(max(value, low), low, high)) for index, value in run]
            if len(points) == 1:
                (x, y) = points[0]
                points = [(x - step / 2, y), (x + step / 2, y)]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(Markup('<polyline class="line {}" points="{}"/>').format(curve.style, path))
    parts.extend(_time_axis(moments))
    newest = ", ".join(
        f"{curve.name} {span(last)}"
        for curve in given
        if (last := next((value for value in reversed(curve.values) if value is not None), None)) is not None
    )
    return _picture(parts, f"{title}, most recently: {newest}." if newest else f"{title}: nothing yet.")


def peaks(bounds: Sequence[float], counts: Sequence[int], limit_mb: float | None, *, title: str) -> Markup:
    """How many attempts used how much memory, and where the limit is. `bounds` in MiB, one fewer than `counts`."""
    used = [index for index, count in enumerate(counts) if count]
    first = max(0, (used[0] if used else 0) - 1)
    last = min(len(counts) - 1, max((used[-1] if used else 0), _bucket(bounds, limit_mb)) + 1)
    shown = range(first, last + 1)
    top = _round_up(max(counts[first : last + 1], default=0) or 1)
    width = PLOT_WIDTH / len(shown)
    parts = _levels(top)
    every = max(1, math.ceil(len(shown) / 8))
    boxes = []
    for place, index in enumerate(shown):
        x = LEFT + place * width
        if counts[index]:
            tall = max(1.0, counts[index] / top * PLOT_HEIGHT)
            boxes.append(Box(x + 1, FLOOR - tall, width - 2, tall))
        if index < len(bounds) and place % every == 0:
            parts.append(_name_below(_short_size(bounds[index]), x + width))
    parts.append(_boxes("bar", boxes))
    if limit_mb is not None:
        x = LEFT + (_position(bounds, limit_mb) - first) * width
        parts.append(_line("limit", x, TOP, x, FLOOR))
        anchor = "end" if x > WIDTH / 2 else "start"
        parts.append(
            Markup('<text class="limit-name" x="{:.1f}" y="{}" text-anchor="{}">limit {}</text>').format(
                x - 5 if anchor == "end" else x + 5, TOP + 8, anchor, megabytes(limit_mb)
            )
        )
    total = sum(counts)
    limit = f" The limit is {megabytes(limit_mb)}." if limit_mb is not None else ""
    return _picture(parts, f"{title}: {total:,} attempts.{limit}")


def time_line(given: Sequence[Stretch], begin: datetime, end: datetime) -> Markup:
    """What followed what between two moments, each on a line of its own: words are text, and only bars are drawn."""
    whole = max(1e-3, (end - begin).total_seconds())
    lines = []
    for stretch in given:
        x = (stretch.start - begin).total_seconds() / whole * LINE_WIDTH
        wide = max(LINE_WIDTH / 200, (stretch.end - stretch.start).total_seconds() / whole * LINE_WIDTH)
        bar = _boxes(stretch.style, [Box(min(max(0.0, x), LINE_WIDTH - wide), 1, wide, 8)])
        lines.append(
            Markup(
                '<li><span>{}</span><svg viewBox="0 0 {} 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
                "<span>{}</span></li>"
            ).format(stretch.name, LINE_WIDTH, bar, span(stretch.end - stretch.start))
        )
    return Markup('<ol class="timeline">{}</ol>').format(Markup("").join(lines))


def _picture(parts: Iterable[Markup], description: str) -> Markup:
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, description, Markup("").join(parts)
    )


def _levels(top: float) -> list[Markup]:
    """Lines at nothing, half and all of a count, where half of it is a count too."""
    parts = []
    for value in (0.0, top / 2, top):
        if value == int(value):
            y = FLOOR - value / top * PLOT_HEIGHT
            parts.append(_line("grid" if value else "axis", LEFT, y, WIDTH - RIGHT, y) + _name_left(f"{value:,.0f}", y))
    return parts


def _name_left(name: str, y: float) -> Markup:
    return Markup('<text x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(LEFT - 6, y + 4, name)


def _name_below(name: str, x: float, anchor: str = "middle") -> Markup:
    return Markup('<text x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(x, FLOOR + 15, anchor, name)


def _line(style: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(style, x1, y1, x2, y2)


def _boxes(style: str, boxes: Iterable[Box]) -> Markup:
    """All of a colour as one path: a tenth of what each would take as an element of its own."""
    path = "".join(f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z" for x, y, width, height in boxes)
    return Markup('<path class="{}" d="{}"/>').format(style, path) if path else Markup("")


def _time_axis(moments: Sequence[datetime]) -> Iterable[Markup]:
    """Whole hours, or quarters of them, as many as have room."""
    yield _line("axis", LEFT, FLOOR, WIDTH - RIGHT, FLOOR)
    if len(moments) < 2:
        return
    begin, one = moments[0].astimezone(UTC), moments[1] - moments[0]
    whole = (moments[-1] - moments[0] + one).total_seconds()
    steps = [hours * 3600 for hours in HOUR_STEPS]
    every = next((step for step in steps if whole / step <= MAX_TIME_NAMES), steps[-1])
    at = datetime.fromtimestamp(math.ceil(begin.timestamp() / every) * every, UTC)
    while (away := (at - begin).total_seconds()) < whole:
        x = LEFT + away / whole * PLOT_WIDTH
        if LEFT + 12 <= x <= WIDTH - RIGHT - 12:
            name = at.strftime("%d %b") if at.hour == at.minute == 0 else at.strftime("%H:%M")
            yield _line("axis", x, FLOOR, x, FLOOR + 3) + _name_below(name, x)
        at += timedelta(seconds=every)


def _runs(values: Sequence[float | None]) -> Iterable[list[tuple[int, float]]]:
    """Pieces of a curve without a gap."""
    run: list[tuple[int, float]] = []
    for index, value in enumerate(values):
        if value is not None:
            run.append((index, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _span_axis(values: Sequence[float]) -> tuple[float, float]:
    """The named spans around all values."""
    least, most = (min(values), max(values)) if values else (SPANS[1], SPANS[2])
    low = max((at for at in SPANS if at <= least), default=SPANS[0])
    high = min((at for at in SPANS if at >= most), default=SPANS[-1])
    return (low, high) if low < high else (low, SPANS[min(len(SPANS) - 1, SPANS.index(low) + 1)] * 1.0001)


def _log(value: float, low: float, high: float) -> float:
    share = math.log(value / low) / math.log(high / low)
    return FLOOR - min(1.0, max(0.0, share)) * PLOT_HEIGHT


def _bucket(bounds: Sequence[float], value: float | None) -> int:
    return 0 if value is None else next((index for index, bound in enumerate(bounds) if value <= bound), len(bounds))


def _position(bounds: Sequence[float], value: float) -> float:
    """Where a value stands among the buckets, each one wide."""
    index = _bucket(bounds, value)
    if index >= len(bounds):
        return len(bounds) + 0.5
    lower = bounds[index - 1] if index else 0.0
    return index + (value - lower) / (bounds[index] - lower)


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50, ..."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= value)


def _short_size(mb: float) -> str:
    return f"{mb / 1024:g}G" if mb >= 1024 else f"{mb:g}M"
