"""Waiting for a thing, with a bound; never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(look: Callable[[], T], what: str, seconds: float = 20.0) -> T:
    """Call `look` until it answers something true; fail with `what` after `seconds`."""
    until = time.monotonic() + seconds
    while True:
        if seen := look():
            return seen
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds:g} s: {what}; last seen: {seen!r}")
        time.sleep(0.01)
