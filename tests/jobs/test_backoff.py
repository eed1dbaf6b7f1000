"""The wait before the next attempt: it doubles, has a cap, and is shortened by up to a fifth."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.backoff import JITTER, MAX_DELAY_SECONDS, backoff


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 5), (2, 10), (3, 20), (4, 40), (5, 80), (6, 160), (7, 300), (8, 300), (1000, 300)]
)
def test_the_delay_doubles_up_to_five_minutes(attempt: int, seconds: float) -> None:
    assert backoff(attempt, 5, chance=0) == timedelta(seconds=seconds)


def test_chance_takes_up_to_a_fifth_away() -> None:
    assert backoff(1, 10, chance=0.5) == timedelta(seconds=9)
    assert backoff(1, 10, chance=0.999999) > timedelta(seconds=8)


@given(attempt=st.integers(-5, 10**9), first=st.floats(0, 10**6), chance=st.floats(0, 1, exclude_max=True))
def test_the_delay_is_never_negative_and_never_over_the_cap(attempt: int, first: float, chance: float) -> None:
    delay = backoff(attempt, first, chance).total_seconds()
    whole = min(first, MAX_DELAY_SECONDS)
    assert whole * (1 - JITTER) - 1e-5 <= delay <= MAX_DELAY_SECONDS


@given(attempt=st.integers(1, 100), first=st.floats(0.001, 1000))
def test_a_later_attempt_never_waits_less(attempt: int, first: float) -> None:
    assert backoff(attempt + 1, first, 0) >= backoff(attempt, first, 0)
