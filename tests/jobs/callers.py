"""Every connection that a service may hold when it enqueues, behind one small face: the real library, each time."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import psycopg
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine


async def settle(value: Any) -> Any:
    """The value of a call on any connection: awaited where the connection is asynchronous."""
    return await value if inspect.isawaitable(value) else value


@dataclass
class Held:
    """An open transaction: what is passed to `enqueue`, and how the service ends it."""

    db: Any
    commit: Callable[[], Any]
    rollback: Callable[[], Any]
    execute: Callable[[str], Any]  # the service's own statement in that transaction


Caller = Callable[[str], AbstractAsyncContextManager[Held]]
CALLERS: dict[str, Caller] = {}


def caller(function: Callable[[str], AsyncIterator[Held]]) -> Caller:
    opened = asynccontextmanager(function)
    CALLERS[function.__name__] = opened
    return opened


def asyncpg_arguments(url: str) -> dict[str, Any]:
    names = {"host": "host", "port": "port", "user": "user", "password": "password", "dbname": "database"}
    return {names[name]: value for name, value in conninfo_to_dict(url).items() if name in names}


@caller
async def psycopg_connection(url: str) -> AsyncIterator[Held]:
    with psycopg.connect(url) as connection:
        yield Held(connection, connection.commit, connection.rollback, connection.execute)


@caller
async def psycopg_cursor(url: str) -> AsyncIterator[Held]:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        yield Held(cursor, connection.commit, connection.rollback, cursor.execute)


@caller
async def psycopg_async_connection(url: str) -> AsyncIterator[Held]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Held(connection, connection.commit, connection.rollback, connection.execute)


@caller
async def psycopg_async_cursor(url: str) -> AsyncIterator[Held]:
    async with await psycopg.AsyncConnection.connect(url) as connection, connection.cursor() as cursor:
        yield Held(cursor, connection.commit, connection.rollback, cursor.execute)


@asynccontextmanager
async def sync_engine(url: str) -> AsyncIterator[sa.Engine]:
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))
    yield engine
    engine.dispose()


@caller
async def sqlalchemy_session(url: str) -> AsyncIterator[Held]:
    async with sync_engine(url) as engine:
        with orm.Session(engine) as session:
            yield Held(session, session.commit, session.rollback, lambda query: session.execute(sa.text(query)))


@caller
async def sqlalchemy_scoped_session(url: str) -> AsyncIterator[Held]:
    async with sync_engine(url) as engine:
        session = orm.scoped_session(orm.sessionmaker(engine))
        yield Held(session, session.commit, session.rollback, lambda query: session.execute(sa.text(query)))
        session.remove()


@caller
async def sqlalchemy_connection(url: str) -> AsyncIterator[Held]:
    async with sync_engine(url) as engine:
        with engine.connect() as connection:
            yield Held(
                connection, connection.commit, connection.rollback, lambda query: connection.execute(sa.text(query))
            )


@asynccontextmanager
async def async_engine(url: str, driver: str) -> AsyncIterator[Any]:
    async def connect() -> Any:
        if driver == "asyncpg":
            return await asyncpg.connect(**asyncpg_arguments(url))
        return await psycopg.AsyncConnection.connect(url)

    engine = create_async_engine(f"postgresql+{driver}://", async_creator=connect)
    yield engine
    await engine.dispose()


def sqlalchemy_async(driver: str) -> None:
    async def session(url: str) -> AsyncIterator[Held]:
        async with async_engine(url, driver) as engine, AsyncSession(engine) as held:
            yield Held(held, held.commit, held.rollback, lambda query: held.execute(sa.text(query)))

    async def scoped_session(url: str) -> AsyncIterator[Held]:
        async with async_engine(url, driver) as engine:
            held = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 0)
            yield Held(held, held.commit, held.rollback, lambda query: held.execute(sa.text(query)))
            await held.remove()

    async def connection(url: str) -> AsyncIterator[Held]:
        async with async_engine(url, driver) as engine, engine.connect() as held:
            yield Held(held, held.commit, held.rollback, lambda query: held.execute(sa.text(query)))

    for function in (session, scoped_session, connection):
        function.__name__ = f"sqlalchemy_async_{function.__name__}_{driver}"
        caller(function)


sqlalchemy_async("psycopg")
sqlalchemy_async("asyncpg")


async def in_asyncpg_transaction(connection: Any) -> Held:
    transaction = connection.transaction()
    await transaction.start()
    return Held(connection, transaction.commit, transaction.rollback, connection.execute)


@caller
async def asyncpg_connection(url: str) -> AsyncIterator[Held]:
    connection = await asyncpg.connect(**asyncpg_arguments(url))
    yield await in_asyncpg_transaction(connection)
    await connection.close()


@caller
async def asyncpg_pool_acquired(url: str) -> AsyncIterator[Held]:
    async with asyncpg.create_pool(**asyncpg_arguments(url), min_size=1, max_size=1) as pool:
        connection = await pool.acquire()
        yield await in_asyncpg_transaction(connection)
        await pool.release(connection)


@asynccontextmanager
async def django_database(url: str) -> AsyncIterator[Any]:
    """Django's own connection of this thread, turned to this test's database."""
    import django
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "unset"}})
        django.setup()
    given = conninfo_to_dict(url)
    connection = connections["default"]
    connection.close()
    connection.settings_dict.update(
        NAME=given["dbname"],
        USER=given.get("user", ""),
        PASSWORD=given.get("password", ""),
        HOST=given.get("host", ""),
        PORT=given.get("port", ""),
    )
    connection.set_autocommit(False)
    yield connection
    connection.close()


def django_held(db: Any, connection: Any) -> Held:
    def execute(query: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(query)

    return Held(db, connection.commit, connection.rollback, execute)


@caller
async def django_connection(url: str) -> AsyncIterator[Held]:
    from django.db import connection as proxy

    async with django_database(url) as connection:
        yield django_held(proxy, connection)


@caller
async def django_connections_default(url: str) -> AsyncIterator[Held]:
    async with django_database(url) as connection:
        yield django_held(connection, connection)
