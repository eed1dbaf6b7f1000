"""One way to run statements on whatever connection a service already holds.

A *program* is a generator that yields statements and is sent their rows. The logic stands once; `run` drives it
synchronously or asynchronously, by the kind of the connection. What a step raises is raised where the program yielded
it. Nothing here commits, and nothing here imports a driver: a connection is told by the module of its class, so a
service pays only for the driver it uses.
"""

import re
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar, cast

T = TypeVar("T")
Row = tuple[Any, ...]


class Statement(NamedTuple):
    """SQL with `%(name)s` parameters, and their values."""

    sql: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Blocking:
    """Work that is none of the database's, such as a file's: in a thread where the connection is asynchronous.

    It is sent no rows.
    """

    work: Callable[[], None]


Program = Generator[Statement | Blocking, Sequence[Row], T]

_PARAMETER = re.compile(r"%\((\w+)\)s")


def run(db: Any, program: Program[T]) -> T | Awaitable[T]:
    """Run `program` in the transaction that `db` has open.

    `db`: a psycopg connection or cursor (sync or async), an SQLAlchemy 2 session or connection (sync or async), an
    asyncpg connection, or a Django connection. Returns the program's value, or an awaitable of it where `db` is
    asynchronous. Raises `TypeError` for anything else.
    """
    is_async, execute = _adapter(type(db))
    return _drive_async(program, execute, db) if is_async else _drive(program, execute, db)


def ask(db: Any, wanted: Statement, read: Callable[[Sequence[Row]], T]) -> T | Awaitable[T]:
    """What `read` makes of the rows of one statement: as `run`, without the cost of a program that has one step."""
    is_async, execute = _adapter(type(db))
    return _ask_async(db, execute, wanted, read) if is_async else read(execute(db, wanted))


def _adapter(given: type) -> "tuple[bool, Callable[[Any, Statement], Any]]":
    for named in given.__mro__:
        adapter = _ADAPTERS.get((named.__module__.partition(".")[0], named.__name__))
        if adapter is not None:
            return adapter
    raise TypeError(
        f"cannot enqueue on {given.__module__}.{given.__qualname__}: pass the connection, cursor or session that "
        "holds your transaction (psycopg, SQLAlchemy 2, asyncpg or Django), not a pool or an engine"
    )


async def _ask_async(
    db: Any, execute: Callable[[Any, Statement], Any], wanted: Statement, read: Callable[[Sequence[Row]], T]
) -> T:
    return read(await execute(db, wanted))


def _drive(program: Program[T], execute: Callable[[Any, Statement], Sequence[Row]], db: Any) -> T:
    try:
        step = next(program)
        while True:
            rows: Sequence[Row] = ()
            try:
                if isinstance(step, Statement):
                    rows = execute(db, step)
                else:
                    step.work()
            except BaseException as error:  # noqa: BLE001  (the program decides, and what it does not catch goes on)
                step = program.throw(error)
            else:
                step = program.send(rows)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        program.close()


async def _drive_async(program: Program[T], execute: Callable[[Any, Statement], Any], db: Any) -> T:
    error: BaseException | None = None
    rows: Sequence[Row] | None = None
    try:
        while True:
            try:
                step = program.send(cast("Sequence[Row]", rows)) if error is None else program.throw(error)
            except StopIteration as done:
                return cast("T", done.value)
            error = None
            try:
                if isinstance(step, Statement):
                    rows = await execute(db, step)
                else:
                    rows = ()
                    await _in_thread(step.work)
            except BaseException as raised:  # noqa: BLE001  (the program decides, and what it does not catch goes on)
                error = raised
    finally:
        program.close()


async def _in_thread(work: Callable[[], None]) -> None:
    import asyncio  # who is asynchronous has it already

    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        # A thread cannot be stopped, and what the program undoes then must not be done after it.
        await asyncio.wait([working])
        raise


@cache
def _colon_style(sql: str) -> str:
    # In parentheses, because SQLAlchemy takes no name that a cast's own colons follow.
    return _PARAMETER.sub(r"(:\1)", sql)


@cache
def dollar_style(sql: str) -> tuple[str, tuple[str, ...]]:
    """The statement with `$1`, `$2` .. for its parameters, and their names in that order."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    return _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", sql), names


# A plain cursor of our own: the caller's row factory, cursor factory and unread results stay as they are. Imported
# once, because even an import that finds everything loaded costs as much as all checks of a job.
@cache
def _psycopg_cursor() -> Callable[[Any], Any]:
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    return partial(Cursor, row_factory=tuple_row)


@cache
def _psycopg_async_cursor() -> Callable[[Any], Any]:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    return partial(AsyncCursor, row_factory=tuple_row)


def _psycopg(db: Any, wanted: Statement) -> Sequence[Row]:
    return cast("Sequence[Row]", _psycopg_cursor()(getattr(db, "connection", db)).execute(*wanted).fetchall())


async def _psycopg_async(db: Any, wanted: Statement) -> Sequence[Row]:
    async with _psycopg_async_cursor()(getattr(db, "connection", db)) as cursor:
        await cursor.execute(wanted.sql, wanted.parameters)
        return cast("Sequence[Row]", await cursor.fetchall())


def _sqlalchemy(db: Any, wanted: Statement) -> Sequence[Row]:
    from sqlalchemy import text

    return [tuple(row) for row in db.execute(text(_colon_style(wanted.sql)), dict(wanted.parameters))]


async def _sqlalchemy_async(db: Any, wanted: Statement) -> Sequence[Row]:
    from sqlalchemy import text

    return [tuple(row) for row in await db.execute(text(_colon_style(wanted.sql)), dict(wanted.parameters))]


def _asyncpg(db: Any, wanted: Statement) -> Awaitable[Sequence[Row]]:
    sql, names = dollar_style(wanted.sql)
    parameters = wanted.parameters
    return cast("Awaitable[Sequence[Row]]", db.fetch(sql, *[parameters[name] for name in names]))


def _django(db: Any, wanted: Statement) -> Sequence[Row]:
    with db.cursor() as cursor:
        cursor.execute(wanted.sql, dict(wanted.parameters))
        return cast("Sequence[Row]", cursor.fetchall())


_ADAPTERS: dict[tuple[str, str], tuple[bool, Callable[[Any, Statement], Any]]] = {
    ("psycopg", "Connection"): (False, _psycopg),
    ("psycopg", "Cursor"): (False, _psycopg),
    ("psycopg", "AsyncConnection"): (True, _psycopg_async),
    ("psycopg", "AsyncCursor"): (True, _psycopg_async),
    ("sqlalchemy", "Session"): (False, _sqlalchemy),
    ("sqlalchemy", "scoped_session"): (False, _sqlalchemy),
    ("sqlalchemy", "Connection"): (False, _sqlalchemy),
    ("sqlalchemy", "AsyncSession"): (True, _sqlalchemy_async),
    ("sqlalchemy", "async_scoped_session"): (True, _sqlalchemy_async),
    ("sqlalchemy", "AsyncConnection"): (True, _sqlalchemy_async),
    ("asyncpg", "Connection"): (True, _asyncpg),
    ("asyncpg", "PoolConnectionProxy"): (True, _asyncpg),
    ("django", "BaseDatabaseWrapper"): (False, _django),
    ("django", "ConnectionProxy"): (False, _django),
}
