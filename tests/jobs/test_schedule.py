"""The grid: fixed in UTC, so it has no gap and no fold; one tick fires at most the newest point."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import Misfire
from jobs.schedule import EPOCH, Due, Every, due

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "every", "before", "after"),
    [
        (NOON, HOUR, NOON, NOON + HOUR),
        (NOON + SECOND, HOUR, NOON, NOON + HOUR),
        (NOON - SECOND, HOUR, NOON - HOUR, NOON),
        (NOON + 59 * MINUTE, 25 * MINUTE, NOON + 40 * MINUTE, NOON + 65 * MINUTE),
        (EPOCH, timedelta(days=1), EPOCH, EPOCH + timedelta(days=1)),
        (EPOCH - SECOND, timedelta(days=1), EPOCH - timedelta(days=1), EPOCH),
        (NOON, timedelta(days=7), datetime(2026, 3, 26, tzinfo=UTC), datetime(2026, 4, 2, tzinfo=UTC)),
    ],
)
def test_the_grid_counts_from_the_epoch(moment: datetime, every: timedelta, before: datetime, after: datetime) -> None:
    assert Every(every).at_or_before(moment) == before
    assert Every(every).next_after(moment) == after


def test_a_change_of_the_clocks_is_no_event() -> None:
    # Europe, 29 March 2026: 02:00 becomes 03:00 at 01:00 UTC. The grid goes on by the hour.
    points = [Every(HOUR).next_after(datetime(2026, 3, 28, 23, tzinfo=UTC) + n * HOUR) for n in range(4)]
    assert points == [datetime(2026, 3, 29, n, tzinfo=UTC) for n in range(4)]


@pytest.mark.parametrize(
    ("late", "misfire", "expected"),
    [
        (-SECOND, Misfire.LATEST, Due(None, NOON, 0)),
        (timedelta(0), Misfire.LATEST, Due(NOON, NOON + HOUR, 0)),
        (timedelta(0), Misfire.SKIP, Due(NOON, NOON + HOUR, 0)),
        (MINUTE, Misfire.SKIP, Due(NOON, NOON + HOUR, 0)),
        (MINUTE + SECOND, Misfire.SKIP, Due(None, NOON + HOUR, 1)),
        (MINUTE + SECOND, Misfire.LATEST, Due(NOON, NOON + HOUR, 0)),
        (3 * HOUR + MINUTE, Misfire.LATEST, Due(NOON + 3 * HOUR, NOON + 4 * HOUR, 3)),
        (3 * HOUR + MINUTE, Misfire.SKIP, Due(NOON + 3 * HOUR, NOON + 4 * HOUR, 3)),
        (3 * HOUR + 2 * MINUTE, Misfire.SKIP, Due(None, NOON + 4 * HOUR, 4)),
    ],
)
def test_what_a_tick_does(late: timedelta, misfire: Misfire, expected: Due) -> None:
    assert due(NOON, NOON + late, grid=Every(HOUR), misfire=misfire, grace=MINUTE) == expected


def test_the_zone_in_which_the_database_shows_a_moment_does_not_matter() -> None:
    kathmandu = timezone(timedelta(hours=5, minutes=45))
    plan = due(
        NOON.astimezone(kathmandu),
        (NOON + SECOND).astimezone(kathmandu),
        grid=Every(HOUR),
        misfire=Misfire.LATEST,
        grace=MINUTE,
    )
    assert plan == Due(NOON, NOON + HOUR, 0)
    assert plan.next_occurrence.utcoffset() == timedelta(0)


moments = st.datetimes(datetime(1960, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
steps = st.integers(1, 40 * 86_400).map(lambda seconds: timedelta(seconds=seconds))


@given(moment=moments, every=steps)
def test_every_moment_lies_between_two_neighbours_of_the_grid(moment: datetime, every: timedelta) -> None:
    before, after = Every(every).at_or_before(moment), Every(every).next_after(moment)
    assert before <= moment < after
    assert after - before == every
    assert (before - EPOCH) % every == timedelta(0)


@given(
    start=moments,
    every=steps,
    late=st.integers(-100, 10**7),
    misfire=st.sampled_from(Misfire),
    grace=st.integers(0, 10**6),
)
def test_a_tick_leaves_no_point_behind_and_counts_each_once(
    start: datetime, every: timedelta, late: int, misfire: Misfire, grace: int
) -> None:
    waiting = Every(every).next_after(start)
    now = waiting + timedelta(seconds=late)
    plan = due(waiting, now, grid=Every(every), misfire=misfire, grace=timedelta(seconds=grace))
    assert plan.next_occurrence > now or plan.next_occurrence == waiting > now
    points = (plan.next_occurrence - waiting) // every
    assert points == plan.missed + (plan.fire is not None)  # each point is fired or missed, none twice
    if plan.fire is not None:
        assert waiting <= plan.fire <= now
        assert plan.fire + every == plan.next_occurrence
        assert misfire is Misfire.LATEST or now - plan.fire <= timedelta(seconds=grace)
    # A second tick at the same moment finds nothing to do.
    again = due(plan.next_occurrence, now, grid=Every(every), misfire=misfire, grace=timedelta(seconds=grace))
    assert again == Due(None, plan.next_occurrence, 0)
