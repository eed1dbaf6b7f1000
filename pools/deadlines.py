"""The deadlines of what runs on the loop: one timer for all of them, as nearly every job ends long before its own."""

import asyncio
import math

from pools.execution import Execution, Intent


class Deadlines:
    """Stops each execution that it watches once its time is over, with `Intent.DEADLINE`."""

    def __init__(self) -> None:
        self._ends: dict[Execution, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = math.inf  # the timer's moment: no deadline lies before it

    def watch(self, execution: Execution, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        """Stop it in so many seconds, unless it is forgotten before; all of them run on one loop."""
        end = self._ends[execution] = loop.time() + seconds
        if end < self._looks_at:
            self._look_at(end, loop)

    def forget(self, execution: Execution) -> None:
        """It has ended. The timer stays: most often there is another one to look at by then."""
        self._ends.pop(execution, None)

    def _look_at(self, moment: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at, self._timer = moment, loop.call_at(moment, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = max(loop.time(), self._looks_at)  # a timer may fire within the clock's resolution before its moment
        self._looks_at, self._timer = math.inf, None
        over = [execution for execution, end in self._ends.items() if end <= now]
        for execution in over:
            self.forget(execution)
            execution.stop(Intent.DEADLINE)
        if self._ends:
            self._look_at(min(self._ends.values()), loop)
