"""The one way from a worker or a command to its database: DATABASE_URL, --database URL or --embedded DIR."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.errors import CommandError

if TYPE_CHECKING:
    import psycopg

CONNECT_SECONDS = 5
STATEMENT_SECONDS = 30  # for a person who waits: longer is not slow but stuck

NO_DATABASE = (
    "no database is named. Either set DATABASE_URL (or pass --database), such as "
    "postgresql://user:password@host:5432/database, or pass --embedded DIR, which runs a PostgreSQL of its own in that "
    "folder. Nothing was started."
)


@dataclass(frozen=True, slots=True)
class Target:
    """A database and how it was named: errors speak of the name, never of the password."""

    url: str
    named: str

    @property
    def place(self) -> str:
        """`host:port`. Raises `CommandError` where the URL is none; libpq's own message would repeat its password."""
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        try:
            parts = {name: str(value) for name, value in conninfo_to_dict(self.url).items()}
        except ProgrammingError:
            raise self._malformed() from None
        host = parts.get("host") or parts.get("hostaddr") or os.environ.get("PGHOST", "")
        port = parts.get("port") or os.environ.get("PGPORT", "5432")
        # A password with an @ or a / that was not escaped ends up in the other parts.
        misplaced = "@" in parts.get("dbname", "") or ("@" in host and not host.startswith("/"))
        if misplaced or not port.replace(",", "").isdigit():
            raise self._malformed()
        return f"{host or 'the local socket'}:{port}"

    def _malformed(self) -> CommandError:
        return CommandError(
            f"{self.named} is not a connection string: it must read postgresql://user:password@host:port/database, "
            "where special characters of the password are percent-encoded (@ is %40, / is %2F), or "
            "host=... dbname=... user=... password=... (an SQLAlchemy URL without its +driver is one too)"
        )


@contextmanager
def target_of(database: str, embedded: Path | None, *, create: bool = False) -> Iterator[Target]:
    """The database that one of the options, or else the environment, names, for the time of the block.

    With `create` an embedded database that does not exist is made. Database errors inside the block become
    `CommandError`. Raises `CommandError`, `EmbeddedServerError`.
    """
    if embedded is not None:
        with _embedded_server(embedded, create=create) as target, errors_explained(target):
            yield target
        return
    target = Target(database, "--database") if database else Target(os.environ.get("DATABASE_URL", ""), "DATABASE_URL")
    if not target.url:
        raise CommandError(NO_DATABASE)
    with errors_explained(target):
        yield target


@contextmanager
def open_connection(target: Target) -> "Iterator[psycopg.Connection[tuple[Any, ...]]]":
    """Connect within a few seconds and check the schema. Raises `SchemaError`, and psycopg's errors."""
    import psycopg

    from jobs.database import connection_parameters
    from jobs.migrate import check

    with psycopg.connect(target.url, **connection_parameters("oomph", CONNECT_SECONDS)) as connection:
        bound_statements(connection)
        check(connection)
        yield connection


def bound_statements(connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
    """Let no statement of the transaction that is open, or now begins, take longer than somebody waits."""
    connection.execute("SELECT set_config('statement_timeout', %s, true)", [f"{STATEMENT_SECONDS}s"])


@contextmanager
def _embedded_server(folder: Path, *, create: bool) -> Iterator[Target]:
    """The server of `folder`: the running one, or one for the time of the block."""
    from supervisor.embedded import EmbeddedServer

    if not create and not (folder / "data").is_dir():
        raise CommandError(
            f"there is no embedded database in {folder}; `oomph worker --embedded {folder}` or "
            f"`oomph migrate --embedded {folder}` makes one"
        )
    server = EmbeddedServer(folder)
    try:
        url = server.start()
    except OSError as error:
        raise CommandError(f"--embedded {folder}: {error.strerror}: {error.filename or folder}") from error
    try:
        yield Target(url, f"--embedded {folder}")
    finally:
        server.stop()


@contextmanager
def errors_explained(target: Target) -> Iterator[None]:
    """Say what PostgreSQL says, in one paragraph that names the database but never its password."""
    import psycopg
    from psycopg import errors

    place = target.place
    expected = (
        psycopg.OperationalError,
        psycopg.DataError,
        psycopg.IntegrityError,
        errors.InsufficientPrivilege,
        errors.ReadOnlySqlTransaction,
    )
    try:
        yield
    except errors.LockNotAvailable as error:
        raise CommandError(
            f"somebody holds a lock on a table of Oomph in the database at {place}; nothing was changed. Wait until "
            "the long transaction there has ended, then run this again"
        ) from error
    except errors.QueryCanceled as error:
        raise CommandError(
            f"the database at {place} took longer than {STATEMENT_SECONDS} s; nothing was changed. It is busy, or a "
            "lock is held; for a list, ask for fewer rows or other filters"
        ) from error
    except expected as error:
        if error.sqlstate is None:
            raise CommandError(f"{target.named}: cannot reach the database at {place}: {_one_line(error)}") from error
        detail = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
        raise CommandError(f"the database at {place} refuses: {error.diag.message_primary}{detail}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
