"""Cron expressions on the clock of a time zone. Pure: the zone's rules are this host's, the moment is the caller's.

The five fields mean what they mean to Debian's cron: minute, hour, day of the month, month, day of the week. What
happens where the clock jumps depends on how the expression is written, as it does there:

- The minute or the hour starts with `*` (`*/15 * * * *`, `0 * * * *`): it recurs. It fires at every matching minute
  that the clock shows: a skipped hour has none, and in a repeated hour it fires on both passes.
- Both are named (`30 2 * * *`, `0 9-17 * * 1-5`): it is fixed. A time that the clock skips fires at the first minute
  after the gap, once for all times in the gap; a time that the clock shows twice fires the first time.

Only matching the fields is the library's work, on a clock without jumps; what a jump does is decided here. Imported
only where a schedule has an expression.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

MAX_EXPRESSION_LENGTH = 200
MAX_COUNTED = 100  # points are counted one by one, and a year of minutes would hold up the worker
_MINUTE = timedelta(minutes=1)
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001  (on a clock without a zone)


@dataclass(frozen=True, slots=True)
class Cron:
    """The points of `expression` on the clock of `timezone`, an IANA name such as `Europe/Berlin` or `UTC`.

    Raises `ValueError` for an expression that cannot be read or never comes, and for a zone that this host's time zone
    data lacks. Points are in UTC.
    """

    expression: str
    timezone: str
    _zone: tzinfo = field(init=False, repr=False, compare=False)
    _recurs: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fields = self.expression.split()
        if len(fields) != 5 or len(self.expression) > MAX_EXPRESSION_LENGTH:
            raise ValueError(
                f"cron={self.expression[:MAX_EXPRESSION_LENGTH]!r} must have five fields, in {MAX_EXPRESSION_LENGTH} "
                "characters at most: minute, hour, day of the month, month, day of the week"
            )
        object.__setattr__(self, "expression", " ".join(fields))
        object.__setattr__(self, "_zone", zone(self.timezone))
        object.__setattr__(self, "_recurs", fields[0].startswith("*") or fields[1].startswith("*"))
        try:
            comes = next(CronSim(self.expression, _ANY_DAY), None)
        except CronSimError as error:
            raise ValueError(f"cron={self.expression!r} cannot be read: {str(error).lower()}") from error
        if comes is None:
            raise ValueError(f"cron={self.expression!r} never comes: no day has all of this")

    def next_after(self, moment: datetime) -> datetime:
        """The first point after `moment`."""
        wall = self._wall(moment)
        firsts = (
            next(point for point in self._points(start, fold) if point > moment)
            for fold, start in ((0, wall), (1, wall - self._repeated(wall)))
            if self._recurs or fold == 0
        )
        return min(firsts)

    def at_or_before(self, moment: datetime) -> datetime:
        """The newest point that is not after `moment`."""
        wall = self._wall(moment) + _MINUTE
        lasts = (
            next(point for point in self._points(start, fold, backwards=True) if point <= moment)
            for fold, start in ((0, wall + self._repeated(wall - _MINUTE)), (1, wall))
            if self._recurs or fold == 0
        )
        return max(lasts)

    def steps(self, first: datetime, last: datetime) -> int:
        """How many points from the point `first` up to `last`, which is not counted; `MAX_COUNTED` at most."""
        return len(list(islice(takewhile(lambda point: point < last, self._from(first)), MAX_COUNTED)))

    def _from(self, point: datetime) -> Iterator[datetime]:
        while True:
            yield point
            point = self.next_after(point)

    def _points(self, wall: datetime, fold: int, *, backwards: bool = False) -> Iterator[datetime]:
        """The points after (or before) the time `wall`; of times that come twice, those of the pass `fold`, 0 or 1."""
        for matching in CronSim(self.expression, wall, reverse=backwards):
            shown = matching
            while self._wall(self._moment(shown)) != shown:  # the clock skips it
                shown += _MINUTE
            if shown == matching or not self._recurs:
                yield self._moment(shown, fold)

    def _repeated(self, wall: datetime) -> timedelta:
        """How far apart the two moments are at which the clock shows `wall`; zero where there is one."""
        return self._moment(wall, 1) - self._moment(wall, 0)

    def _wall(self, moment: datetime) -> datetime:
        return moment.astimezone(self._zone).replace(tzinfo=None)

    def _moment(self, wall: datetime, fold: int = 0) -> datetime:
        return wall.replace(tzinfo=self._zone, fold=fold).astimezone(UTC)


def zone(name: str) -> tzinfo:
    """The time zone of this name. Raises `ValueError` where this host has none."""
    if name == "UTC":
        return UTC  # also on a host without any time zone data
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"timezone={name!r} is not in the time zone data of this host; where the name is right, install them "
            "(the package tzdata, of the system or of Python)"
        ) from error
