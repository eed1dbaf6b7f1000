"""The signals of a worker, while it runs and after it has ended. What they mean stands in `supervisor.shutdown`."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # a closed terminal ends the worker in order, too
IGNORED = (signal.SIGUSR1, signal.SIGUSR2)  # by default they kill


def on_signal(call: Callable[[], None]) -> None:
    """Have each of them call `call` on the running loop, where it may only set a flag."""
    loop = asyncio.get_running_loop()

    def tell(*_: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: the end that was asked for has come
            loop.call_soon_threadsafe(call)

    # Not the loop's own handlers: as it removes them, the default is back for a moment, and that kills.
    for number in ENDING:
        signal.signal(number, tell)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)


def ignore_signals() -> None:
    """Let them do nothing any more.

    Once the loop is closed, one that comes late would kill the process by default, and the orderly end of an impatient
    deploy would look like a death.
    """
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
