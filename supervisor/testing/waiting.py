"""Waiting for a thing, with a bound; never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_SECONDS = 0.01


class NotInTime(AssertionError):
    """What was waited for did not come."""


def wait_for(look: Callable[[], T | None], what: str, seconds: float = 20.0) -> T:
    """Call `look` until it answers something true, and return that.

    Raises `NotInTime`, an `AssertionError` naming `what` and the last answer, after `seconds`.
    """
    until = time.monotonic() + seconds
    while True:
        if seen := look():
            return seen
        if time.monotonic() > until:
            raise NotInTime(f"not within {seconds:g} s: {what}; last seen: {seen!r}")
        time.sleep(LOOK_SECONDS)
