"""A connection of its own for the statements that every job passes, spoken to in libpq's own words.

    fetch_together(complete, claim):  send, send, sync -> rows, rows, committed: one transaction, one way there and back

The driver's cursors ask the event loop four things and the kernel two for each statement, which costs as much as the
statement does. Here the socket is watched once and for all, what is called repeatedly is prepared, and calls that are
made together are one transaction. What comes back is read by the driver's own types.
"""

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import psycopg
from psycopg import abc, errors, pq
from psycopg.adapt import Transformer

from jobs.bounds import Bounded
from jobs.connection import Row, dollar_style
from jobs.sql import statement
from jobs.unavailable import Named

log = logging.getLogger("oomph.database")

Value = str | float | None  # of an array, its text: see `jobs.arrays`
Call = tuple[str, Mapping[str, Value]]  # a statement's name, and its parameters

# Refusals of what was asked, after which the connection is as good as before.
_REFUSED = (errors.LockNotAvailable, psycopg.IntegrityError, psycopg.DataError)

# What a pooler in transaction mode answers that hides behind its server's process id: it did nothing.
_NOT_PREPARED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)


class Preparing:
    """Whether statements are prepared: lanes to one database share what one of them has found, which is said once.

    A function's plan is known to be right; prepared, a claim spares itself the way to it.
    """

    def __init__(self) -> None:
        self.is_of_use = True

    def do_without(self) -> None:
        """Never again. Behind a pooler, the statement of that name may be one that somebody else prepared."""
        if self.is_of_use:
            log.info("the database is behind a pooler; claims and successes do without prepared statements")
        self.is_of_use = False


class Lane:
    """Calls come one after the other. Opened by the first, closed after one that broke, and opened again by the next.

    `parameters` are those of each connection; `call_timeout`, in seconds, bounds each call, a connect included. A new
    connection makes the `first` calls by itself, so that no later one waits for their plans.
    """

    def __init__(
        self,
        url: str,
        *,
        call_timeout: float,
        parameters: Mapping[str, Any],
        preparing: Preparing | None = None,
        first: Sequence[Call] = (),
    ) -> None:
        self._url = url
        self._call_timeout = call_timeout
        self._parameters = parameters
        self._preparing = preparing or Preparing()
        self._first = first
        self._line: _Line | None = None
        self._turn = asyncio.Lock()

    async def fetch(self, query: str, /, **parameters: Value) -> list[Row]:
        """Run one statement in its own transaction; return its rows. Raises as `fetch_together` does."""
        (rows,) = await self.fetch_together((query, parameters))
        return rows

    async def fetch_together(self, *calls: Call) -> list[list[Row]]:
        """Run these statements, one after the other, in one transaction; return the rows of each.

        They are committed when this returns. Raises `DatabaseUnavailable`, `Locked`, or what one of them raises, which
        undoes all of them.
        """
        with Named():
            async with self._turn:
                try:
                    return await self._run(calls)
                except _NOT_PREPARED:
                    self._preparing.do_without()
                    return await self._run(calls)

    async def _run(self, calls: Sequence[Call]) -> list[list[Row]]:
        try:
            if self._line is None or self._line.is_broken:
                await self.close()
                self._line = await self._connect()
            with Bounded(self._line.connection, self._call_timeout):
                return await self._line.run(calls, prepared=self._preparing.is_of_use)
        except _REFUSED:
            raise  # as a whole, by a server that goes on
        except BaseException:
            await self.close()
            raise

    async def _connect(self) -> "_Line":
        loop = asyncio.get_running_loop()
        until = loop.time() + self._call_timeout
        async with asyncio.timeout_at(until):
            connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True, **self._parameters)
        line = _Line(connection)
        try:
            # Not just left alone: a server that waits for a lock does not see that its client has gone.
            with Bounded(connection, until - loop.time()):
                await self._prepare(line)
        except BaseException:
            await line.close()
            raise
        return line

    async def _prepare(self, line: "_Line") -> None:
        if self._preparing.is_of_use:
            ((rows,),) = await line.run([("backend_pid", {})], prepared=False)
            if rows[0] == line.connection.info.backend_pid:
                await line.run([("lane_settings", {})], prepared=False)
                await line.run(self._first, prepared=True)
            else:
                self._preparing.do_without()

    async def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()


class _Line:
    """One connection in pipeline mode: what is sent between two syncs is one transaction."""

    def __init__(self, connection: "psycopg.AsyncConnection[Any]") -> None:
        self.connection = connection
        self.is_broken = False
        self._transformer = Transformer(connection)
        self._libpq = connection.pgconn
        self._socket = self._libpq.socket
        self._loop = asyncio.get_running_loop()
        self._names: dict[str, bytes] = {}  # of what is prepared here, by the statement's own
        self._prepared = 0
        self._namespace = f"oomph_{uuid.uuid4().hex}"  # behind a pooler, others have theirs in the same session
        self._results: list[pq.abc.PGresult] = []
        self._answer: asyncio.Future[None] | None = None
        self._libpq.enter_pipeline_mode()
        self._loop.add_reader(self._socket, self._read)

    async def run(self, calls: Sequence[Call], *, prepared: bool) -> list[list[Row]]:
        known = self._names.copy()
        # All before the first is sent: one that cannot be would leave the others to the next call's transaction.
        values = [_values(query, parameters, self._transformer.encoding) for query, parameters in calls]
        self._results, self._answer = [], self._loop.create_future()
        try:
            for (query, _), given in zip(calls, values, strict=True):
                self._send(query, given, prepared)
            self._libpq.pipeline_sync()
            self._flush()
            await self._answer
            results, self._results = self._results, []
        finally:
            self._answer = None
        if (error := next((result for result in results if _has_failed(result)), None)) is not None:
            self._names = known  # behind an error, nothing was prepared
            raise errors.error_from_result(error, self._transformer.encoding)
        return [_rows(self._transformer, result) for result in results if result.status == pq.ExecStatus.TUPLES_OK]

    async def close(self) -> None:
        self._break(psycopg.OperationalError("the connection was closed"))
        await self.connection.close()

    def _send(self, query: str, values: Sequence[abc.Buffer | None], prepared: bool) -> None:
        text, _ = _text(query)
        if not prepared:
            self._libpq.send_query_params(text, values, result_format=pq.Format.BINARY)
            return
        if (name := self._names.get(query)) is None:
            self._prepared += 1
            name = f"{self._namespace}_{self._prepared}".encode()
            self._libpq.send_prepare(name, text)
            self._names[query] = name
        self._libpq.send_query_prepared(name, values, result_format=pq.Format.BINARY)

    def _flush(self) -> None:
        """Send what has not left yet. The kernel takes most of what is said at once."""
        try:
            is_sent = self._libpq.flush() == 0
        except psycopg.Error as error:
            self._break(error)
            return
        if is_sent:
            self._loop.remove_writer(self._socket)
        else:
            self._loop.add_writer(self._socket, self._flush)

    def _read(self) -> None:
        try:
            self._libpq.consume_input()
            while self._answer is not None and not self._answer.done() and not self._libpq.is_busy():
                if (result := self._libpq.get_result()) is None:  # the end of one statement's results
                    continue
                if result.status == pq.ExecStatus.PIPELINE_SYNC:
                    self._answer.set_result(None)
                else:
                    self._results.append(result)
        except psycopg.Error as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        if self.is_broken:
            return  # the number of its socket may be another one's by now
        self.is_broken = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


@cache
def _text(query: str) -> tuple[bytes, tuple[str, ...]]:
    text, names = dollar_style(statement(query))
    return text.encode(), names


def _values(query: str, parameters: Mapping[str, Value], encoding: str) -> list[bytes | None]:
    """As text, whose types the server infers from where they stand; the driver would name the smallest that fits."""
    _, names = _text(query)
    return [None if (value := parameters[name]) is None else _value(value, encoding) for name in names]


def _value(value: str | float, encoding: str) -> bytes:
    text = str(value)
    if "\0" in text:  # libpq would take what stands before it
        raise psycopg.DataError("PostgreSQL's text cannot hold a NUL")
    return text.encode(encoding)


def _rows(transformer: abc.Transformer, result: "pq.abc.PGresult") -> list[Row]:
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)


def _has_failed(result: "pq.abc.PGresult") -> bool:
    return result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.PIPELINE_ABORTED)
