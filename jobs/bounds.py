"""The end of a call that takes too long: the server is asked to end it, and where nothing comes the line is cut.

Cancelled by asyncio, the driver would ask for five seconds and wait for five more: on a network that has fallen silent
a worker would come back that much later, and a short lease would be lost meanwhile.
"""

import asyncio
import socket
from contextlib import suppress
from types import TracebackType
from typing import Any

import psycopg

ASK_SECONDS = 1.0  # for the server to hear it, and as long again to do it


class Bounded:
    """Gives what the block does on `connection` so many seconds. Raises `TimeoutError`, within `2 * ask` after that.

    Whether the connection is of use afterwards, it knows itself.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any], seconds: float, *, ask: float = ASK_SECONDS) -> None:
        self._connection = connection
        self._seconds = seconds
        self._ask = ask
        self._ending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._begin_end)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._ending is not None:
            self._ending.cancel()
            if isinstance(error, psycopg.OperationalError):
                raise TimeoutError(f"no answer in {self._seconds:.3g} s") from error

    def _begin_end(self) -> None:
        self._ending = asyncio.get_running_loop().create_task(_end(self._connection, self._ask))


async def _end(connection: psycopg.AsyncConnection[Any], ask: float) -> None:
    with suppress(psycopg.Error, OSError):
        await connection.cancel_safe(timeout=ask)
        await asyncio.sleep(ask)
    # Whoever waits for an answer there sees the end of the connection.
    with suppress(psycopg.Error, OSError):
        line = socket.socket(fileno=connection.fileno())  # not a copy: there may be no descriptor left for one
        try:
            line.shutdown(socket.SHUT_RDWR)
        finally:
            line.detach()
