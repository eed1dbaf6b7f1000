"""A network between a worker and PostgreSQL that can be cut, frozen, slowed down and healed."""

import asyncio
import contextlib
import shutil
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

SOCKET = ".s.PGSQL.5432"


class Proxy:
    """Forwards a Unix socket to the server of `url`; `url` of this object goes through it.

    `freeze()` leaves every connection open and delivers nothing: a half-open network. `cut()` closes them and refuses
    new ones. `slow()` lets everything arrive late. `swallow()` delivers what is asked and loses one answer with
    all that follows it. `heal()` ends all of them.
    """

    def __init__(self, url: str) -> None:
        parameters = conninfo_to_dict(url)
        port = parameters.get("port") or 5432
        self._target = f"{parameters['host']}/.s.PGSQL.{port}"
        self._directory = Path(tempfile.mkdtemp(prefix="oomph-proxy-"))
        self.url = make_conninfo(url, host=str(self._directory), port=5432)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._flowing: asyncio.Event
        self._refusing = False
        self._delay = 0.0
        self._swallowed: bytes | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self._directory)

    def freeze(self) -> None:
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def cut(self) -> None:
        self._call(self._cut())

    def slow(self, seconds: float) -> None:
        self._delay = seconds

    def swallow(self, answer: bytes) -> None:
        """From the first data of the server that contain `answer`, their connection delivers nothing more of it."""
        self._swallowed = answer

    def heal(self) -> None:
        self._refusing = False
        self._swallowed = None
        self._delay = 0.0
        self._loop.call_soon_threadsafe(self._flowing.set)

    def _call(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)  # type: ignore[arg-type]

    async def _start(self) -> None:
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server = await asyncio.start_unix_server(self._accept, str(self._directory / SOCKET))

    async def _stop(self) -> None:
        self._server.close()
        self._refusing = True
        for _ in range(10):  # who was accepted in this very moment is known within fewer turns of the loop
            await asyncio.sleep(0)
        await self._cut()
        self._flowing.set()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _cut(self) -> None:
        self._refusing = True
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if self._refusing:
            writer.transport.abort()
            return
        if (task := asyncio.current_task()) is not None:
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)
        await self._flowing.wait()
        if self._refusing:  # cut while it waited
            return
        try:
            upstream_reader, upstream = await asyncio.open_unix_connection(self._target)
        except OSError:  # the server is down
            writer.transport.abort()
            return
        self._writers.add(upstream)
        if self._refusing:  # cut while it was opened
            writer.transport.abort()
            upstream.transport.abort()
            return
        for source, sink in ((reader, upstream), (upstream_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink, answers=sink is writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        lost = False
        try:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    if self._delay:
                        await asyncio.sleep(self._delay)
                    await self._flowing.wait()
                    lost = lost or (answers and self._swallowed is not None and self._swallowed in data)
                    if lost:
                        continue
                    sink.write(data)
                    await sink.drain()
        finally:
            sink.transport.abort()
