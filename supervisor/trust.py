"""How long a worker may act on its lease: pure arithmetic on a monotonic clock.

    trusted until: the moment the last successful renewal was SENT + lease - margin

Once that has passed, or the database said that the lease is gone, trust never comes back: a renewal whose answer
arrives later changes nothing, even if the database did extend the lease.
"""


def renewal_bound(left: float, heartbeat: float, another: float) -> float:
    """How many seconds a renewal may take while the lease is trusted for `left`: a heartbeat, unless it were then too
    late for `another`, on a new connection. Where there is no time for both, a third, so that two more may fail.
    """
    return min(heartbeat, max(left - another, left / 3))


class Trust:
    """Times in seconds; every method takes or keeps moments of one clock. Asked from two threads."""

    def __init__(self, *, lease: float, margin: float, registered_at: float) -> None:
        self._lease = lease
        self._margin = margin
        self._until = registered_at + lease - margin
        self._lost = False

    def holds(self, now: float) -> bool:
        """Whether the worker may act at `now`. Never true again once it was false."""
        if now >= self._until:
            self._lost = True
        return not self._lost

    def left(self, now: float) -> float:
        """The seconds for which it holds from `now` on."""
        return max(0.0, self._until - now) if self.holds(now) else 0.0

    def renew(self, sent: float, now: float) -> None:
        """The answer to a renewal, sent at `sent`, arrived at `now`."""
        if self.holds(now):
            self._until = max(self._until, sent + self._lease - self._margin)

    def lose(self) -> None:
        """The database says that the lease is gone."""
        self._lost = True
