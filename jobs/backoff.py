"""How long a failed attempt waits before the next. Pure."""

from datetime import timedelta

MAX_DELAY_SECONDS = 300.0
JITTER = 0.2  # up to a fifth less: jobs that failed together do not come back together


def backoff(attempt: int, first_seconds: float, chance: float) -> timedelta:
    """`min(first_seconds * 2^(attempt-1), 300 s)`, shortened by up to a fifth.

    `attempt` counts from 1, `chance` is uniform in [0, 1).
    """
    doublings = min(max(attempt, 1) - 1, 30)  # 2^30 seconds is beyond every cap, and floats stay small
    delay = min(first_seconds * 2**doublings, MAX_DELAY_SECONDS)
    return timedelta(seconds=delay * (1 - JITTER * chance))
