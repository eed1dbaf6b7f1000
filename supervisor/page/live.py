"""Live views: one reader for everybody who watches, and a stream of server-sent events for each of them.

    reader      one task while anybody watches; about twice a second it reads what is watched, each thing once
    frame       the live part of a view, made again only where the answer is another one, and sent only where that
                shows: an answer holds more than a view does, such as until when each worker has its lease
    stream      one viewer's; it is given the newest frame and never a queue of old ones

A viewer who takes no bytes is let go, there are no more than `MAX_STREAMS`, and each stream ends after a while: the
browser comes back at once, and shows again that it may look. All end when the server is told to stop.
"""

import asyncio
import json
import logging
import random
import signal
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jobs.unavailable import DatabaseUnavailable
from supervisor.page.access import Refused
from supervisor.page.looks import Look
from supervisor.page.quantities import without_ages

POLL_SECONDS = 0.5
SHARE = 3  # times what a round of reading took, until the next: live views take a quarter of one connection at most
MAX_STREAMS = 64
LIFE_SECONDS = 120.0
BEAT_SECONDS = 15.0  # without a word, a proxy takes a stream for dead
SEND_SECONDS = 10.0  # for a viewer to take what it is sent
GIVE_UP_AFTER = 2  # looks in a row that failed: then the database is away, and the rest of the round need not ask
RETRY_MS = 500  # until the browser comes back

log = logging.getLogger("oomph.page")


@dataclass(frozen=True, slots=True)
class Frame:
    """The live part of a view. `shown` is what there is to see in it; `sent` goes to the viewer."""

    shown: str
    sent: str

    @classmethod
    def of(cls, look: Look, html: str) -> "Frame":
        # As JSON, because a bare carriage return, too, would end a line of the stream.
        return cls(without_ages(html), json.dumps({"now": look.at.isoformat(), "html": html}))


@dataclass(eq=False, slots=True)
class Watch:
    """One viewer's interest in one view.

    Those whose `place` is equal see the same thing, and those whose `look_of_it` is too, the same HTML.
    """

    place: Hashable
    look_of_it: Hashable
    read: Callable[[], Awaitable[Look]]
    show: Callable[[Look], str]
    news: asyncio.Event = field(default_factory=asyncio.Event)
    looked: Look | None = None
    frame: Frame | None = None
    away: bool = False  # the database was, at the last look
    over: bool = False

    def tell(self, look: Look, frames: dict[Hashable, Frame]) -> None:
        """This is what there is to see now. `frames` are those that were made of the same look."""
        if self.away or self.looked is None or look.shown != self.looked.shown:
            if self.look_of_it not in frames:
                frames[self.look_of_it] = Frame.of(look, self.show(look))
            frame = frames[self.look_of_it]
            if self.away or self.frame is None or frame.shown != self.frame.shown:
                self.frame, self.away = frame, False
                self.news.set()
        self.looked = look

    def tell_away(self) -> None:
        """The database does not answer."""
        if not self.away:
            self.away = True
            self.news.set()

    def end(self) -> None:
        self.over = True
        self.news.set()


class Live:
    """The reader of one server process."""

    def __init__(self) -> None:
        self._watches: set[Watch] = set()
        self._reader: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def is_full(self) -> bool:
        return len(self._watches) >= MAX_STREAMS or self._closed or _server_stops()

    def add(self, watch: Watch) -> None:
        self._watches.add(watch)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read_on(), name="oomph page reader")

    def remove(self, watch: Watch) -> None:
        self._watches.discard(watch)

    async def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._end_all()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})

    async def _read_on(self) -> None:
        try:
            while self._watches and not _server_stops():
                began = time.monotonic()
                await self._read_all()
                await asyncio.sleep(max(POLL_SECONDS, SHARE * (time.monotonic() - began)))
        finally:
            self._end_all()

    async def _read_all(self) -> None:
        """Each thing that is watched once, one after the other: of all connections, live views need one."""
        places: dict[Hashable, list[Watch]] = {}
        for watch in self._watches:
            places.setdefault(watch.place, []).append(watch)
        failures = 0
        for watches in random.sample(list(places.values()), len(places)):
            look = None if failures >= GIVE_UP_AFTER else await _look(watches)
            if look is None:
                failures += 1
                continue
            failures = 0
            _tell(watches, look)

    def _end_all(self) -> None:
        for watch in self._watches:
            watch.end()


async def _look(watches: Sequence[Watch]) -> Look | None:
    """What all of these are to see; None where they were told otherwise."""
    try:
        return await watches[0].read()
    except DatabaseUnavailable:
        for watch in watches:
            watch.tell_away()
    except Exception as error:
        if not isinstance(error, Refused):  # what is gone: the page itself will say so
            log.exception("a live view failed")
        for watch in watches:
            watch.end()
    return None


def _tell(watches: Sequence[Watch], look: Look) -> None:
    """Show them what there is, each in the form that is theirs."""
    frames: dict[Hashable, Frame] = {}
    try:
        for watch in watches:
            watch.tell(look, frames)
    except Exception:  # a fault of ours in one view; the others go on
        log.exception("a live view cannot be shown")
        for watch in watches:
            watch.end()


class LiveStream(Response):
    """The answer to one viewer."""

    media_type = "text/event-stream"

    def __init__(self, live: Live, watch: Watch) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._live, self._watch = live, watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  (a response is an app)
        self._live.add(self._watch)
        leaving = asyncio.ensure_future(_left(receive))
        streaming = asyncio.ensure_future(self._stream(send))
        try:
            await asyncio.wait({leaving, streaming}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._live.remove(self._watch)
            for task in (leaving, streaming):
                task.cancel()
            done, _ = await asyncio.wait({leaving, streaming})
            for task in done:
                if not task.cancelled() and (error := task.exception()) is not None:
                    log.info("a live view's viewer was let go: %s", str(error) or type(error).__name__)

    async def _stream(self, send: Send) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        ends = time.monotonic() + LIFE_SECONDS
        await self._say(send, f"retry: {RETRY_MS}\n\n")
        while not self._watch.over and (left := ends - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(left, BEAT_SECONDS)):
                    await self._watch.news.wait()
            except TimeoutError:
                await self._say(send, ":\n\n")
                continue
            self._watch.news.clear()
            if self._watch.away:
                await self._say(send, "event: away\ndata:\n\n")
            elif self._watch.frame is not None:
                await self._say(send, f"event: frame\ndata: {self._watch.frame.sent}\n\n")
        async with asyncio.timeout(SEND_SECONDS):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _say(self, send: Send, text: str) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _server_stops() -> bool:
    """Whether uvicorn was told to stop. It waits for its streams to end and has no other way to tell them."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
