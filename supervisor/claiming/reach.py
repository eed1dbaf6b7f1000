"""How far back in the queue the claims of one pool look.

    the head          what may have come late             now
    |-- passed over, where that is dear --|-- looked at --|-- not due --
                                          ^ LATE_SECONDS before the last claim that left nothing

What finished jobs leave in the index is walked over by every claim that starts at the queue's head, for as long as
anybody's old snapshot can see them: ten milliseconds for 100,000 of them. Where nobody holds such a snapshot they
are walked over once, and every claim starts at the head. Where somebody does, a claim looks only at what a claim before
it cannot have seen. A job that comes to an earlier place is found

- at once, where that was notified as such: one that was given back, or waited for its concurrency key; and after every
  action of an operator, and whenever the listener is connected;
- else by the next look at the whole queue, in a second, or in 20 times what the last one took where that is longer, ten
  seconds at most: one of a transaction of more than `LATE_SECONDS`, or enqueued with a `run_after` in the past.

While the queue is longer than the claims take, each goes on where the last one ended, by kind and priority. What comes
to an earlier place meanwhile waits for `MARK_SECONDS` at most, or until a claim is not full.
"""

import math
from collections.abc import Collection, Sequence

from jobs.claim import ClaimedJob, Mark

MARK_SECONDS = 1.0  # the longest that a job which comes back to an earlier place is passed over
LATE_SECONDS = 2.0  # from the begin of a transaction, which dates its jobs, to its commit; most take milliseconds


class Reach:
    """One pool's. Pure: moments are of the monotonic clock, in seconds; the database is told none, only distances."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, int], Mark] = {}
        self._marked_at = -math.inf
        self._emptied_at = -math.inf  # a claim that was sent then left nothing
        self._earlier_at = -math.inf  # something came to an earlier place, or may have

    def marks(self, now: float) -> Collection[Mark]:
        """Where the next claim goes on, if the last one was full."""
        return list(self._marks.values()) if now - self._marked_at <= MARK_SECONDS else []

    def seconds(self, now: float) -> float:
        """What has been due for longer than this was taken already; infinite where that is not known."""
        return math.inf if self._emptied_at <= self._earlier_at else now - self._emptied_at + LATE_SECONDS

    def filled(self, claimed: Sequence[ClaimedJob], sent_at: float) -> None:
        """A claim that was sent at that moment took these, and there may be more."""
        if not self.marks(sent_at):
            self._marks, self._marked_at = {}, sent_at
        # They are in the queue's order, but for those of organisations, which take turns and are not passed over.
        last = {(job.kind, job.priority): job for job in claimed if job.organization_id is None}
        for place, job in last.items():
            self._marks[place] = Mark(job.kind, job.priority, job.run_after, job.id)

    def passed(self) -> None:
        """There is nothing past the marks any more; perhaps there is something before them."""
        self._marks = {}

    def emptied(self, sent_at: float) -> None:
        """A claim without marks, sent at that moment, took all that there was."""
        self._emptied_at = sent_at

    def came_earlier(self, now: float) -> None:
        """Until a claim that is sent from now on has left nothing, look at the whole queue where there are no marks."""
        self._earlier_at = now
