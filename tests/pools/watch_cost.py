"""What the watch costs: `python -m tests.pools.watch_cost [children] [helpers each] [seconds]`.

Prints the processor seconds that the supervisor spends in a minute while all of them only wait.
"""

import asyncio
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from pools.execution import Intent
from pools.ingest import IngestPool
from tests.pools.handlers_app import app
from tests.pools.kitchen import SPEC, Kitchen, text_of, until


async def main(children: int, helpers: int, seconds: float) -> None:
    pool = IngestPool(SPEC, app, memory_mb=200, slots=children)
    await pool.start()
    kitchen = Kitchen(pool)
    with TemporaryDirectory() as folder:
        ready = [Path(folder, str(number)) for number in range(children)]
        executions = [kitchen.order("helpers_that_wait", f"{path} {helpers}", timeout=3600) for path in ready]
        running = [asyncio.create_task(pool.run(execution)) for execution in executions]
        await until(lambda: all(text_of(path) for path in ready), 120)
        await asyncio.sleep(2)
        spent, started = time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        spent, took = time.process_time() - spent, time.monotonic() - started
        for execution in executions:
            execution.stop(Intent.CANCEL)
        await asyncio.gather(*running)
    await pool.stop()
    print(f"{children} children x {1 + helpers} processes: {spent / took * 60:.2f} processor seconds a minute")


if __name__ == "__main__":
    numbers = [*map(int, sys.argv[1:]), *(64, 2, 30)[len(sys.argv) - 1 :]]
    asyncio.run(main(*numbers))
