"""The grids of schedules and what a tick does. Pure: a moment comes from the caller, never from a clock."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from jobs.app import Misfire

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Grid(Protocol):
    """The points in time at which a schedule fires."""

    def next_after(self, moment: datetime) -> datetime:
        """The first point after `moment`."""
        ...

    def at_or_before(self, moment: datetime) -> datetime:
        """The newest point that is not after `moment`."""
        ...

    def steps(self, first: datetime, last: datetime) -> int:
        """How many points from the point `first` up to `last`, which is not counted."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """The grid `1970-01-01T00:00Z + n x step`: in UTC there is no gap and no fold, so no daylight-saving rule."""

    step: timedelta

    def next_after(self, moment: datetime) -> datetime:
        return self.at_or_before(moment) + self.step

    def at_or_before(self, moment: datetime) -> datetime:
        return EPOCH + ((moment - EPOCH) // self.step) * self.step

    def steps(self, first: datetime, last: datetime) -> int:
        return (last - first) // self.step


@dataclass(frozen=True, slots=True)
class Due:
    """What a tick does: `fire` an occurrence or nothing, then wait for `next_occurrence`; `missed` were passed over."""

    fire: datetime | None
    next_occurrence: datetime
    missed: int


def grid(every: timedelta | None, cron: str | None, timezone: str | None) -> Grid:
    """The grid that a schedule declares, by its step or by its expression.

    Raises `ValueError` for an expression that this release does not read, or a zone that this host does not know.
    """
    if every is not None:
        return Every(every)
    if cron is None or timezone is None:
        raise ValueError("a schedule has neither a step nor an expression with its time zone")
    from jobs.cron import Cron  # with what only it needs

    return Cron(cron, timezone)


def due(next_occurrence: datetime, now: datetime, *, grid: Grid, misfire: Misfire, grace: timedelta) -> Due:
    """Decide what a tick at `now` does with a schedule that waits for `next_occurrence`.

    One tick fires at most one occurrence, the newest. Later than `grace`, `Misfire.LATEST` still fires it and
    `Misfire.SKIP` does not.
    """
    if now < next_occurrence:
        return Due(fire=None, next_occurrence=next_occurrence, missed=0)
    latest = max(grid.at_or_before(now), next_occurrence)
    passed = grid.steps(next_occurrence, latest)
    following = grid.next_after(max(now, latest))
    if misfire is Misfire.SKIP and now - latest > grace:
        return Due(fire=None, next_occurrence=following, missed=passed + 1)
    return Due(fire=latest, next_occurrence=following, missed=passed)
