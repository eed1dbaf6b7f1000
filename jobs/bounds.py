"""The end of a call that takes too long: the server is asked to end it, and where nothing comes the line is cut.

Cancelled by asyncio, the driver would ask for five seconds and wait for five more: on a network that has fallen silent
a worker would come back that much later, and a short lease would be lost meanwhile.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg

ASK_SECONDS = 1.0  # for the server to hear it, and as long again to do it


@asynccontextmanager
async def bounded(
    connection: psycopg.AsyncConnection[Any], seconds: float, *, ask: float = ASK_SECONDS
) -> AsyncIterator[None]:
    """Give what the block does on `connection` so many seconds. Raises `TimeoutError`, within `2 * ask` after that.

    Whether the connection is of use afterwards, it knows itself.
    """
    loop = asyncio.get_running_loop()
    ending: list[asyncio.Task[None]] = []
    timer = loop.call_later(seconds, lambda: ending.append(loop.create_task(_end(connection, ask))))
    try:
        yield
    except psycopg.OperationalError as error:
        if ending:
            raise TimeoutError(f"no answer in {seconds:.3g} s") from error
        raise
    finally:
        timer.cancel()
        for task in ending:
            task.cancel()


async def _end(connection: psycopg.AsyncConnection[Any], ask: float) -> None:
    with suppress(psycopg.Error, OSError):
        await connection.cancel_safe(timeout=ask)
        await asyncio.sleep(ask)
    # Whoever waits for an answer there sees the end of the connection.
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
