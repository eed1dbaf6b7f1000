"""The one loop around every background component: run again and again, restart with back-off, never in silence."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from jobs.unavailable import DatabaseUnavailable

log = logging.getLogger("oomph.services")

FIRST_DELAY = 0.1
LAST_DELAY = 5.0  # after an outage the worker is back within this time


async def run_forever(name: str, run_once: Callable[[], Awaitable[float | None]]) -> None:
    """Call `run_once` for ever; it returns the seconds to wait before the next call (None: none).

    An unreachable database is said once, then tried again with growing delays. Anything else that a component raises
    is a fault of ours: it is logged with its stack and the component goes on, so that no fault of one pass makes the
    worker half alive.
    """
    delay = FIRST_DELAY
    failing = False
    while True:
        try:
            pause = await run_once()
        except DatabaseUnavailable as error:
            if not failing:
                log.warning("%s: the database is not available: %s", name, error)
        except Exception:
            log.exception("%s failed and is started again", name)
        else:
            if failing:
                log.warning("%s: back again", name)
            failing, delay = False, FIRST_DELAY
            await asyncio.sleep(pause or 0)
            continue
        failing = True
        await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # jitter: a fleet does not come back in one moment
        delay = min(delay * 2, LAST_DELAY)
