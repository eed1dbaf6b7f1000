"""How far back in the queue the claims of one pool look.

    the head          what may have come late             now
    |-- passed over, where that is dear --|-- looked at --|-- not due --
                                          ^ LATE_SECONDS before the last claim that left nothing

What finished jobs leave in the index is walked over by every claim that starts at the queue's head, for as long as
anybody's old snapshot can see them: half a millisecond for a thousand of them. Where nobody holds such a snapshot they
are walked over once, and every claim starts at the head. Where somebody does, a claim looks only at what a claim before
it cannot have seen. A job that comes to an earlier place is found

- at once, where that was notified as such: one that was given back, or waited for its concurrency key; and after every
  action of an operator, and whenever the listener is connected;
- else by the next look at the whole queue, in a second, or in 20 times what the last one took, if that is longer: one
  of a transaction of more than `LATE_SECONDS`, one that was enqueued with a `run_after` in the past.

While the queue is longer than the claims take, each goes on where the last one ended, by kind and priority. What comes
to an earlier place meanwhile waits for `MARK_SECONDS` at most, or until a claim is not full.
"""

import math
import time
from collections.abc import Collection, Sequence

from jobs.store import ClaimedJob, Mark

MARK_SECONDS = 1.0  # the longest that a job which comes back to an earlier place is passed over
LATE_SECONDS = 2.0  # from the begin of a transaction, which dates its jobs, to its commit; most take milliseconds


class Reach:
    """One pool's. Moments are of the monotonic clock, in seconds; the database gets none of them, only distances."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, int], Mark] = {}
        self._marked_at = 0.0
        self._all_taken_at = -math.inf  # a claim that was sent then left nothing
        self._earlier_at = -math.inf  # something came to an earlier place, or may have

    @property
    def marks(self) -> Collection[Mark]:
        """Where the next claim goes on, if the last one was full."""
        if self._marks and time.monotonic() - self._marked_at > MARK_SECONDS:
            self._marks = {}
        return self._marks.values()

    @property
    def seconds(self) -> float:
        """What has been due for longer than this was taken already; infinite where that is not known."""
        if self._all_taken_at <= self._earlier_at:
            return math.inf
        return time.monotonic() - self._all_taken_at + LATE_SECONDS

    def filled(self, claimed: Sequence[ClaimedJob]) -> None:
        """A claim took these, and there may be more."""
        if not self._marks:
            self._marked_at = time.monotonic()
        last = {(job.kind, job.priority): job for job in claimed}  # they are in the queue's order
        for place, job in last.items():
            self._marks[place] = Mark(job.kind, job.priority, job.run_after, job.id)

    def passed(self) -> None:
        """There is nothing past the marks any more; perhaps there is something before them."""
        self._marks = {}

    def emptied(self, sent_at: float) -> None:
        """A claim without marks, sent at that moment, took all that there was."""
        self._all_taken_at = sent_at

    def came_earlier(self) -> None:
        """From now on, until a claim has seen it all, look at the whole queue."""
        self._marks = {}
        self._earlier_at = time.monotonic()
