"""The event loop that a worker runs on: its own way to resolve names, and an end that waits for nobody."""

import asyncio
import gc
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

log = logging.getLogger("oomph.worker")

GC_THRESHOLD = 10_000  # new objects before a look: a few MB of cyclic garbage at most
CANCEL_SECONDS = 1.0  # for tasks that jobs left behind; they were asked to end once already
IDLE_SECONDS = 0.5  # for idle threads to notice that they are not needed any more


class WorkerLoop(asyncio.SelectorEventLoop):
    """Resolves names in threads of its own: handlers may fill the default ones, and the database must be found."""

    def __init__(self) -> None:
        super().__init__()
        self._resolver = ThreadPoolExecutor(max_workers=2, thread_name_prefix="oomph-resolver")
        self._handlers = ThreadPoolExecutor(thread_name_prefix="oomph-default")
        self.set_default_executor(self._handlers)

    async def getaddrinfo(self, host: Any, port: Any, **hints: Any) -> Any:
        return await self.run_in_executor(self._resolver, lambda: socket.getaddrinfo(host, port, **hints))

    def dismiss(self) -> bool:
        """Let go of every thread and task that is left, waiting for none; whether all of them ended."""
        for executor in (self._resolver, self._handlers):
            executor.shutdown(wait=False, cancel_futures=True)
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_SECONDS))
        return all(task.done() for task in tasks)


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker's exit status, and what its jobs left running in this process."""

    status: int
    lingering: list[str]

    def leave(self) -> None:
        """End the process at once where something lingers; the interpreter would wait for it, for ever if need be."""
        if self.lingering:
            log.warning("leaving behind what jobs have started: %s", ", ".join(self.lingering))
            logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(self.status)


def run(main: Coroutine[Any, Any, int]) -> Ended:
    """Run `main` to its exit status; `asyncio.run` would wait for whatever jobs left behind. Raises what it raises."""
    loop = WorkerLoop()
    asyncio.set_event_loop(loop)
    try:
        status = loop.run_until_complete(main)
    finally:
        all_ended = loop.dismiss()
    until = time.monotonic() + IDLE_SECONDS
    while (threads := _waited_for()) and time.monotonic() < until:
        time.sleep(0.01)
    if all_ended:
        loop.close()
    return Ended(status, [*threads, *([] if all_ended else ["tasks that ignore their end"])])


async def ended_within(seconds: float, work: Coroutine[Any, Any, object]) -> bool:
    """Wait for `work`, `seconds` at most; psycopg takes ten more to give up a call that nobody answers."""
    task = asyncio.create_task(work)
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        task.cancel()
        return False
    await task
    return True


def keep_what_is_there() -> None:
    """Spare the garbage collector what the start has made, and a look after every fiftieth job."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def _waited_for() -> list[str]:
    """The threads that the interpreter would wait for at its end."""
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    return [thread.name for thread in others if not thread.daemon]
