"""A few pages over HTTP, for a monitor and not for the world: GET only, one request a connection.

Nothing a client does costs the worker more than this:

    accepted    one connection every `PACE_SECONDS`; the others wait in the kernel, which drops what is too much
    open        `MAX_CONNECTIONS`; where all are taken, the one that has kept its request back longest is closed
    request     `MAX_HEAD_BYTES`, read as it comes; no body is ever read
    exchange    `EXCHANGE_SECONDS` from the accept to the last byte of the answer

A loop that is blocked answers nothing: that is what a monitor has its own time-out for.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

PACE_SECONDS = 0.005  # 200 connections a second are many times what monitors need, and take a few percent of a core
MAX_CONNECTIONS = 16
MAX_HEAD_BYTES = 8 << 10
READ_BYTES = 2 << 10
EXCHANGE_SECONDS = 5.0
TEXT = "text/plain; charset=utf-8"
HEAD_END = b"\r\n\r\n"

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

log = logging.getLogger("oomph.http")


class EndpointError(Exception):
    """The address cannot be listened on. Nothing was started."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page says."""

    text: str
    status: int = 200
    content_type: str = TEXT


class Endpoint:
    """Listens on one address; `pages` are coroutines by path."""

    def __init__(self, host: str, port: int, pages: Mapping[str, Callable[[], Awaitable[Answer]]]) -> None:
        self._host = host
        self._port = port
        self._pages = pages
        self._listening: socket.socket | None = None
        self._exchanges: set[asyncio.Task[None]] = set()
        self._reading: dict[asyncio.Task[None], None] = {}  # whose request is not there yet, oldest first

    def open(self) -> None:
        """Listen. Raises `EndpointError`."""
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, *_, address = found[0]
            self._listening = socket.create_server(address[:2], family=family, backlog=MAX_CONNECTIONS)
        except OSError as error:
            raise EndpointError(
                f"WORKER_HTTP={self._host}:{self._port} cannot be listened on: {error.strerror}; choose another port, "
                "or an address of this host"
            ) from error
        self._listening.setblocking(False)
        log.info("metrics and health on http://%s", self.address)

    @property
    def address(self) -> str:
        """Where it really listens, as a URL writes it."""
        assert self._listening is not None, "not open"
        host, port = self._listening.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def accept_once(self) -> float:
        """Take one connection; its exchange goes on by itself. Returns the seconds until the next may be taken."""
        assert self._listening is not None, "not open"
        try:
            connection, _ = await asyncio.get_running_loop().sock_accept(self._listening)
        except ConnectionError:  # it was gone before we came
            return PACE_SECONDS
        if len(self._exchanges) >= MAX_CONNECTIONS and not await self._make_room():
            connection.close()
            return PACE_SECONDS
        exchange = asyncio.create_task(self._exchange(connection), name="oomph http")
        self._exchanges.add(exchange)
        self._reading[exchange] = None
        exchange.add_done_callback(self._forget)
        return PACE_SECONDS

    async def close(self) -> None:
        """Answer nobody any more."""
        if self._listening is not None:
            self._listening.close()
        for exchange in self._exchanges:
            exchange.cancel()
        if self._exchanges:
            await asyncio.wait(self._exchanges)

    async def _make_room(self) -> bool:
        """Close the connection that has kept its request back longest, if any does. Returns whether."""
        slowest = next(iter(self._reading), None)
        if slowest is not None:
            slowest.cancel()
            await asyncio.wait({slowest})
        return slowest is not None

    def _forget(self, exchange: asyncio.Task[None]) -> None:
        self._exchanges.discard(exchange)
        self._reading.pop(exchange, None)
        if not exchange.cancelled() and (error := exchange.exception()) is not None:
            log.error("an exchange failed", exc_info=error)

    async def _exchange(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            # Late, reset or gone: it is the client's to ask again.
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(EXCHANGE_SECONDS):
                    head = await self._read_head(connection)
                    if head is None:
                        return
                    self._reading.pop(asyncio.current_task(), None)  # type: ignore[arg-type]
                    await loop.sock_sendall(connection, _written(await self._answer(head)))
                    connection.shutdown(socket.SHUT_WR)
        finally:
            connection.close()

    async def _read_head(self, connection: socket.socket) -> bytes | None:
        """The request up to its empty line, or as much of it as is too much; None where the client leaves before."""
        loop = asyncio.get_running_loop()
        head = b""
        while HEAD_END not in head and len(head) <= MAX_HEAD_BYTES:
            data = await loop.sock_recv(connection, READ_BYTES)
            if not data:
                return None
            head += data
        return head

    async def _answer(self, head: bytes) -> Answer:
        if HEAD_END not in head:
            return Answer(f"the request has more than {MAX_HEAD_BYTES} bytes\n", 431)
        parts = head.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
            return Answer("not a request of HTTP/1\n", 400)
        if parts[0] != b"GET":
            return Answer("GET only\n", 405)
        page = self._pages.get(parts[1].partition(b"?")[0].decode("latin-1"))
        if page is None:
            return Answer(f"here are {', '.join(self._pages)}\n", 404)
        try:
            return await page()
        except Exception:
            log.exception("a page failed")
            return Answer("the page failed; the worker's log says why\n", 500)


def _written(answer: Answer) -> bytes:
    body = answer.text.encode()
    head = [
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *(["Allow: GET"] if answer.status == 405 else []),
    ]
    return "\r\n".join(head).encode() + HEAD_END + body
