"""Threads for what blocks: /proc, the disk, cgroups. The loop's default ones may all be held by handlers."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A few threads of one purpose, so that no other work can hold it up.

    All are started at once: later, when a job has taken every pid that is left, one that is needed to end it could not.
    """

    def __init__(self, name: str, count: int) -> None:
        """Raises `RuntimeError` where no thread can be started."""
        self._executor = ThreadPoolExecutor(max_workers=count, thread_name_prefix=f"oomph-{name}")
        all_there = threading.Barrier(count)  # an executor starts none while another is idle
        try:
            for _ in range(count):
                self._executor.submit(all_there.wait)
        except RuntimeError:
            all_there.abort()
            self.stop()
            raise

    async def run(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: function(*arguments, **named))

    def stop(self) -> None:
        """Do not wait for what a stuck disk may hold for ever."""
        self._executor.shutdown(wait=False, cancel_futures=True)
