"""The queue as metrics tell it: looked at once for everybody who asks, and no more often than is cheap."""

import asyncio
import logging
import time

from jobs.database import Database
from jobs.queue_sample import COUNT_LIMIT, QueueSample, sample_queue
from jobs.unavailable import DatabaseUnavailable
from supervisor.monitor import catalog
from supervisor.monitor.exposition import Page

FRESH_SECONDS = 10.0  # below any scrape interval in use: one look serves all who ask within it
SHARE = 20  # times what the last look took, until the next: the database is kept busy for 5 % of the time at most
WAIT_SECONDS = (
    2.0  # of a scrape for a look; a database that is slower is told as such, and the rest of the page goes out
)

log = logging.getLogger("oomph.metrics")


class QueueView:
    """The newest sample of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sample: QueueSample | None = None
        self._next_at = 0.0
        self._looking: asyncio.Task[None] | None = None

    async def look(self) -> QueueSample | None:
        """The sample, made now where the last one is old; None where the database does not give one in time."""
        if self._looking is None and time.monotonic() >= self._next_at:
            self._looking = asyncio.create_task(self._look(), name="oomph queue sample")
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=WAIT_SECONDS)
            if self._looking is not None:
                return None
        return self._sample

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})

    async def _look(self) -> None:
        pause = FRESH_SECONDS
        try:
            self._sample = await sample_queue(self._database)
            pause = max(FRESH_SECONDS, SHARE * self._sample.seconds)
        except DatabaseUnavailable as error:
            if self._sample is not None:
                log.warning("the queue cannot be looked at: %s", error)
            self._sample = None
        except Exception:  # a fault of ours; metrics of the worker itself are still worth telling
            log.exception("the queue cannot be looked at")
            self._sample = None
        finally:
            self._next_at, self._looking = time.monotonic() + pause, None


def tell_queue(page: Page, sample: QueueSample | None) -> None:
    """What is known of the queue: nothing but that, where it could not be looked at."""
    page.add_one(catalog.SAMPLE_OK, 0 if sample is None else 1)
    if sample is None:
        return
    states = ("due", "scheduled", "blocked")
    counts = [((each.pool, each.kind, state), getattr(each, state)) for each in sample.kinds for state in states]
    page.add(catalog.QUEUED, counts)
    page.add_one(catalog.QUEUED_LIMIT, COUNT_LIMIT)
    page.add(catalog.OLDEST, [((each.pool, each.kind), each.oldest_age) for each in sample.kinds])
    page.add(catalog.PAUSED, [((each.kind,), int(each.paused)) for each in sample.kinds])
    page.add(catalog.STREAK, [((each.kind,), each.kill_streak) for each in sample.kinds])
    page.add_one(catalog.KINDS_LEFT_OUT, sample.left_out)
    page.add_one(catalog.CLOCK, sample.clock_offset)
    page.add_one(catalog.SAMPLE_SECONDS, sample.seconds)
