"""Figures, what is demanded of them, and whether they reach it. Pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum


def percentile(values: Sequence[float], share: float) -> float:
    """Between the two nearest values. `share` from 0 to 1; there must be a value."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass(frozen=True, slots=True)
class Figure:
    """What one system reached, a value a run."""

    label: str
    values: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        if len(self.values) == 1:
            return _short(self.values[0])
        return f"{_short(self.median)} [{_short(min(self.values))}..{_short(max(self.values))}]"


class Kind(Enum):
    AT_LEAST = ">="  # ours / theirs
    AT_MOST = "<="  # ours / theirs
    FASTER = "faster by"  # theirs / ours, of times
    BELOW = "<"  # ours alone
    HOLDS = "holds"  # ours alone: 1 or 0, judged by the scenario


@dataclass(frozen=True, slots=True)
class Demand:
    kind: Kind
    limit: float

    def reached(self, ours: Figure, theirs: Figure | None) -> float:
        """The number that is held against the limit."""
        match self.kind:
            case Kind.BELOW | Kind.HOLDS:
                return ours.median
            case Kind.FASTER:
                assert theirs is not None
                return theirs.median / ours.median
            case Kind.AT_LEAST | Kind.AT_MOST:
                assert theirs is not None
                return ours.median / theirs.median

    def holds(self, ours: Figure, theirs: Figure | None) -> bool:
        reached = self.reached(ours, theirs)
        match self.kind:
            case Kind.AT_LEAST | Kind.FASTER:
                return reached >= self.limit
            case Kind.AT_MOST:
                return reached <= self.limit
            case Kind.BELOW:
                return reached < self.limit
            case Kind.HOLDS:
                return reached == 1

    def __str__(self) -> str:
        match self.kind:
            case Kind.AT_LEAST | Kind.AT_MOST:
                return f"{self.kind.value} {self.limit:g} x"
            case Kind.FASTER:
                return f"{self.limit:g} x faster"
            case Kind.BELOW:
                return f"< {self.limit:g}"
            case Kind.HOLDS:
                return "holds"


def at_least(limit: float) -> Demand:
    """Ours / theirs."""
    return Demand(Kind.AT_LEAST, limit)


def at_most(limit: float) -> Demand:
    """Ours / theirs."""
    return Demand(Kind.AT_MOST, limit)


def faster(limit: float) -> Demand:
    """Theirs / ours, where both are times."""
    return Demand(Kind.FASTER, limit)


def below(limit: float) -> Demand:
    """Ours alone."""
    return Demand(Kind.BELOW, limit)


HOLDS = Demand(Kind.HOLDS, 1)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. Without a demand it only tells."""

    scenario: str
    what: str
    ours: Figure | None
    theirs: Figure | None = None
    demand: Demand | None = None
    error: str = field(default="")

    @property
    def passed(self) -> bool | None:
        """None where nothing is demanded."""
        if self.error:
            return False
        if self.demand is None or self.ours is None:
            return None
        return self.demand.holds(self.ours, self.theirs)


def best(figures: Sequence[Figure]) -> Figure:
    """The one with the highest median."""
    return max(figures, key=lambda figure: figure.median)


def lowest(figures: Sequence[Figure]) -> Figure:
    """The one with the lowest median."""
    return min(figures, key=lambda figure: figure.median)


def _short(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
