"""The grid of schedules. Pure: a fixed grid in UTC has no gap and no fold, so no daylight-saving rule is needed."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from jobs.app import Misfire

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Due:
    """What a tick does: `fire` an occurrence or nothing, then wait for `next_occurrence`; `missed` were passed over."""

    fire: datetime | None
    next_occurrence: datetime
    missed: int


def at_or_before(moment: datetime, every: timedelta) -> datetime:
    """The newest point of the grid `1970-01-01T00:00Z + n x every` that is not after `moment`."""
    return EPOCH + ((moment - EPOCH) // every) * every


def next_after(moment: datetime, every: timedelta) -> datetime:
    """The first point of the grid after `moment`."""
    return at_or_before(moment, every) + every


def due(next_occurrence: datetime, now: datetime, *, every: timedelta, misfire: Misfire, grace: timedelta) -> Due:
    """Decide what a tick at `now` does with a schedule that waits for `next_occurrence`.

    One tick fires at most one occurrence, the newest. Later than `grace`, `Misfire.LATEST` still fires it and
    `Misfire.SKIP` does not.
    """
    if now < next_occurrence:
        return Due(fire=None, next_occurrence=next_occurrence, missed=0)
    latest = max(at_or_before(now, every), next_occurrence)
    passed = (latest - next_occurrence) // every
    following = next_after(max(now, latest), every)
    if misfire is Misfire.SKIP and now - latest > grace:
        return Due(fire=None, next_occurrence=following, missed=passed + 1)
    return Due(fire=latest, next_occurrence=following, missed=passed)
