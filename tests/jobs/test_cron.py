"""Cron expressions: what each field means, and what happens where the clock jumps, against a clock that is looked at
minute by minute."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import Misfire, Pool, Schedule, Task, Tick
from jobs.cron import MAX_COUNTED, Cron
from jobs.schedule import Due, due

MINUTE = timedelta(minutes=1)
NIGHTLY = Task(kind="nightly", payload_type=Tick, pool=Pool.SYSTEM)


def points(expression: str, zone: str, start: str, count: int) -> list[str]:
    """The first points after the local time `start` (of its first pass), as the zone's clock shows them."""
    cron, local = Cron(expression, zone), ZoneInfo(zone)
    moment = datetime.fromisoformat(start).replace(tzinfo=local)
    found = []
    for _ in range(count):
        moment = cron.next_after(moment)
        found.append(f"{moment.astimezone(local):%m-%d %H:%M%z}")
    return found


# Berlin 2026: 29 March 02:00 becomes 03:00; 25 October 03:00 becomes 02:00. New York: 8 March, 1 November.
@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        # Fixed: a time that is skipped comes at the first minute after the gap, several of them once.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-27T12:00",
            ["03-28 02:30+0100", "03-29 03:00+0200", "03-30 02:30+0200"],
        ),
        ("0,20,40 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["03-29 03:00+0200", "03-30 02:00+0200"]),
        (
            "30 2,3 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00",
            ["03-29 03:00+0200", "03-29 03:30+0200", "03-30 02:30+0200"],
        ),
        ("0 3 * * *", "Europe/Berlin", "2026-03-28T12:00", ["03-29 03:00+0200", "03-30 03:00+0200"]),
        # Fixed: a time that comes twice comes the first time.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00",
            ["10-25 02:30+0200", "10-26 02:30+0100"],
        ),
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00", ["11-01 01:30-0400", "11-02 01:30-0500"]),
        # It recurs: by the minutes that pass.
        (
            "*/30 * * * *",
            "Europe/Berlin",
            "2026-03-29T01:00",
            ["03-29 01:30+0100", "03-29 03:00+0200", "03-29 03:30+0200"],
        ),
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-25T01:00",
            ["10-25 01:30+0200", "10-25 02:30+0200", "10-25 02:30+0100", "10-25 03:30+0100"],
        ),
        ("*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["03-30 02:00+0200", "03-30 02:20+0200"]),
        # A jump of half an hour, and a day that a whole island skipped.
        (
            "30 * * * *",
            "Australia/Lord_Howe",
            "2026-04-05T00:45",
            ["04-05 01:30+1100", "04-05 01:30+1030", "04-05 02:30+1030"],
        ),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00", ["10-04 02:30+1100", "10-05 02:15+1100"]),
        ("0 9 * * *", "Pacific/Apia", "2011-12-29T00:00", ["12-29 09:00-1000", "12-31 00:00+1400", "12-31 09:00+1400"]),
        # Both days named: either. One of them a star: both.
        ("0 0 13 * 5", "UTC", "2026-02-01T00:00", ["02-06 00:00+0000", "02-13 00:00+0000", "02-20 00:00+0000"]),
        ("0 0 1-7 * 1", "UTC", "2026-06-08T00:00", ["06-15 00:00+0000", "06-22 00:00+0000", "06-29 00:00+0000"]),
        ("0 0 */2 * 1", "UTC", "2026-06-02T00:00", ["06-15 00:00+0000", "06-29 00:00+0000"]),
        ("0 12 29 feb *", "UTC", "2026-01-01T00:00", ["02-29 12:00+0000"]),
        ("5 4 L * *", "Asia/Kathmandu", "2026-02-01T00:00", ["02-28 04:05+0545", "03-31 04:05+0545"]),
    ],
)
def test_the_written_rule(expression: str, zone: str, start: str, expected: list[str]) -> None:
    assert points(expression, zone, start, len(expected)) == expected


@dataclass(frozen=True)
class Field:
    """One field as it is written, and what it means."""

    text: str
    values: frozenset[int]


def fields(lowest: int, highest: int) -> st.SearchStrategy[Field]:
    numbers = st.integers(lowest, highest)
    everything = range(lowest, highest + 1)
    star = st.just(Field("*", frozenset(everything)))
    step = st.integers(2, highest).map(lambda n: Field(f"*/{n}", frozenset(everything[::n])))
    one = numbers.map(lambda n: Field(f"{n}", frozenset({n})))
    span = st.tuples(numbers, numbers).map(sorted).map(lambda ends: (ends[0], ends[1]))
    ranges = span.map(lambda ends: Field(f"{ends[0]}-{ends[1]}", frozenset(range(ends[0], ends[1] + 1))))
    lists = st.frozensets(numbers, min_size=2, max_size=4).map(lambda n: Field(",".join(map(str, sorted(n))), n))
    return star | step | one | ranges | lists


@dataclass(frozen=True)
class Written:
    """An expression, with the meaning of its fields."""

    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(f.text for f in (self.minute, self.hour, self.day, self.month, self.weekday))

    @property
    def recurs(self) -> bool:
        return self.minute.text.startswith("*") or self.hour.text.startswith("*")

    def matches(self, wall: datetime) -> bool:
        days = (wall.day in self.day.values, wall.isoweekday() % 7 in self.weekday.values)
        on_day = all(days) if self.day.text.startswith("*") or self.weekday.text.startswith("*") else any(days)
        return (
            wall.minute in self.minute.values
            and wall.hour in self.hour.values
            and wall.month in self.month.values
            and on_day
        )


# Days are rarely named: a search by hand covers a few of them.
DAYS = st.just(Field("*", frozenset(range(1, 32)))) | fields(1, 31)
WEEKDAYS = st.just(Field("*", frozenset(range(7)))) | fields(0, 6)
MONTHS = st.just(Field("*", frozenset(range(1, 13))))
expressions = st.builds(Written, fields(0, 59), fields(0, 23), DAYS, MONTHS, WEEKDAYS)

# Days around a jump: forward and back, by an hour, by half an hour, at midnight, over a day, and none at all.
JUMPS = [
    ("Europe/Berlin", datetime(2026, 3, 29, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, tzinfo=UTC)),
    ("America/Santiago", datetime(2026, 4, 5, tzinfo=UTC)),
    ("America/Santiago", datetime(2026, 9, 6, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, tzinfo=UTC)),
    ("Pacific/Kwajalein", datetime(1969, 9, 30, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 3, 29, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 10, 25, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2026, 2, 15, tzinfo=UTC)),
    ("Asia/Kolkata", datetime(2026, 5, 5, tzinfo=UTC)),
    ("UTC", datetime(2026, 12, 31, tzinfo=UTC)),
]


@cache
def clock(zone: str, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """Every minute, and what the zone's clock shows then."""
    local, minutes = ZoneInfo(zone), int((end - start) / MINUTE)
    moments = (start + n * MINUTE for n in range(minutes))
    return [(moment, moment.astimezone(local).replace(tzinfo=None)) for moment in moments]


def minute_by_minute(written: Written, zone: str, start: datetime, end: datetime) -> Iterator[datetime]:
    """What someone finds who looks at the zone's clock every minute, and remembers which times it has shown."""
    shown: set[datetime] = set()
    before: datetime | None = None
    for moment, wall in clock(zone, start - timedelta(days=2), end):  # the first pass of a day may be the day before
        fires = written.matches(wall)
        if not written.recurs:
            fires = fires and wall not in shown
            skipped = before + MINUTE if before is not None else wall
            while skipped < wall:
                fires = fires or (written.matches(skipped) and skipped not in shown)
                skipped += MINUTE
            shown.add(wall)
            before = wall
        if fires and moment >= start:
            yield moment


@settings(max_examples=100, deadline=None)
@given(written=expressions, jump=st.sampled_from(JUMPS), seconds=st.integers(-86_400, 86_400))
def test_next_and_newest_are_what_one_sees_who_looks_every_minute(
    written: Written, jump: tuple[str, datetime], seconds: int
) -> None:
    zone, day = jump
    cron = Cron(written.text, zone)
    start, end = day - timedelta(days=1), day + timedelta(days=2)
    seen = list(minute_by_minute(written, zone, start, end))

    found, point = [], start - timedelta(seconds=1)
    while (point := cron.next_after(point)) < end:
        found.append(point)
    assert found == seen

    moment = day + timedelta(seconds=seconds, microseconds=seconds % 3)
    earlier = [point for point in seen if point <= moment]
    if earlier:
        assert cron.at_or_before(moment) == earlier[-1]
    else:
        assert cron.at_or_before(moment) < start
    if len(seen) > 1:
        assert cron.steps(seen[0], seen[-1]) == min(len(seen) - 1, MAX_COUNTED)


@settings(max_examples=200, deadline=None)
@given(written=expressions, jump=st.sampled_from(JUMPS), seconds=st.integers(-86_400, 86_400))
def test_the_next_after_the_newest_is_the_next(written: Written, jump: tuple[str, datetime], seconds: int) -> None:
    cron, moment = Cron(written.text, jump[0]), jump[1] + timedelta(seconds=seconds)
    newest, following = cron.at_or_before(moment), cron.next_after(moment)
    assert newest <= moment < following
    assert cron.next_after(newest) == following
    assert cron.at_or_before(following) == following
    assert cron.steps(newest, following) == 1
    assert following.utcoffset() == newest.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("expression", "newest"),
    [
        ("45 2 * * *", "2026-10-25T02:45+02:00"),  # of the first pass, though the clock now shows less
        ("*/45 2 * * *", "2026-10-25T02:00+01:00"),
        ("45 * * * *", "2026-10-25T02:45+02:00"),
        ("5 2 * * *", "2026-10-25T02:05+02:00"),
        ("10 1 * * *", "2026-10-25T01:10+02:00"),
    ],
)
def test_the_newest_point_is_found_from_a_second_pass(expression: str, newest: str) -> None:
    moment = datetime.fromisoformat("2026-10-25T02:10+01:00")
    assert Cron(expression, "Europe/Berlin").at_or_before(moment) == datetime.fromisoformat(newest)


def test_a_misfire_on_a_calendar_is_the_same_as_on_a_grid() -> None:
    cron = Cron("30 2 * * *", "Europe/Berlin")
    waiting = datetime(2026, 3, 26, 1, 30, tzinfo=UTC)
    now = datetime(2026, 3, 29, 1, 5, tzinfo=UTC)  # five minutes after the night without half past two
    following = datetime(2026, 3, 30, 0, 30, tzinfo=UTC)
    newest = datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert due(waiting, now, grid=cron, misfire=Misfire.LATEST, grace=MINUTE) == Due(newest, following, 3)
    assert due(waiting, now, grid=cron, misfire=Misfire.SKIP, grace=MINUTE) == Due(None, following, 4)
    assert due(waiting, now, grid=cron, misfire=Misfire.SKIP, grace=5 * MINUTE) == Due(newest, following, 3)


def test_years_of_minutes_that_passed_hold_nobody_up() -> None:
    waiting, now = datetime(2016, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    plan = due(waiting, now, grid=Cron("* * * * *", "Europe/Berlin"), misfire=Misfire.LATEST, grace=MINUTE)
    assert plan == Due(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 1, tzinfo=UTC), MAX_COUNTED)


def test_a_schedule_keeps_its_expression_as_it_is_read_and_takes_utc_where_no_zone_is_named() -> None:
    schedule = Schedule("nightly", NIGHTLY, cron="  30  2 * * mon-fri ")
    assert (schedule.cron, schedule.timezone, schedule.every) == ("30 2 * * mon-fri", "UTC", None)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({}, TypeError, "schedule nightly: give it either every=timedelta(..) or cron='..'"),
        ({"every": MINUTE, "cron": "* * * * *"}, TypeError, "give it either every=timedelta(..) or cron='..'"),
        ({"every": MINUTE, "timezone": "UTC"}, TypeError, "every counts in UTC; a timezone belongs to cron"),
        ({"cron": 5}, TypeError, "cron must be a string, not 5"),
        ({"cron": "* * * * *", "timezone": UTC}, TypeError, "timezone must be a string"),
        ({"cron": "* * * *"}, ValueError, "must have five fields"),
        ({"cron": "0 * * * * *"}, ValueError, "must have five fields"),
        ({"cron": "@daily"}, ValueError, "must have five fields"),
        ({"cron": "1" * 500 + " * * * *"}, ValueError, "in 200 characters at most"),
        ({"cron": "61 * * * *"}, ValueError, "schedule nightly: cron='61 * * * *' cannot be read: bad minute"),
        ({"cron": "0 0 30 2 *"}, ValueError, "cannot be read: bad day-of-month"),
        ({"cron": "0 0 */20 * 1L"}, ValueError, "never comes"),
        ({"cron": "0 0 * * *", "timezone": "Europe/Atlantis"}, ValueError, "timezone='Europe/Atlantis' is not in the"),
        ({"cron": "0 0 * * *", "timezone": "Europe"}, ValueError, "timezone='Europe' is not in the time zone data"),
        ({"cron": "0 0 * * *", "timezone": "/etc/passwd"}, ValueError, "is not in the time zone data of this host"),
        ({"cron": "0 0 * * *", "timezone": ""}, ValueError, "is not in the time zone data of this host"),
        ({"cron": "0 0 * * *", "timezone": "\x00"}, ValueError, "is not in the time zone data of this host"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(given: dict[str, object], error: type, message: str) -> None:
    with pytest.raises(error) as refused:
        Schedule("nightly", NIGHTLY, **given)  # type: ignore[arg-type]
    assert message in str(refused.value)


@settings(max_examples=300)
@given(st.text("0123456789*/,-#LWlmonfeb ", max_size=40))
def test_whatever_is_written_is_read_or_refused_with_a_sentence(text: str) -> None:
    try:
        cron = Cron(text, "Europe/Berlin")
    except ValueError as error:
        assert str(error).startswith("cron=")  # noqa: PT017
    else:
        assert cron.next_after(datetime(2026, 1, 1, tzinfo=UTC)) > datetime(2026, 1, 1, tzinfo=UTC)
