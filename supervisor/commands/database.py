"""How commands get to their database: options that name it, then a connection."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor import target as targets
from supervisor.commands.options import refuse_two_databases
from supervisor.target import Target, open_connection

if TYPE_CHECKING:
    import psycopg


def target_of(database: str, embedded: Path | None, *, create: bool = False) -> AbstractContextManager[Target]:
    """What `supervisor.target.target_of` gives; wrong usage where the options name two databases."""
    refuse_two_databases(database, embedded)
    return targets.target_of(database, embedded, create=create)


@contextmanager
def connected(
    database: str, embedded: Path | None, *, create: bool = False
) -> "Iterator[psycopg.Connection[tuple[Any, ...]]]":
    """A connection to a database that fits this release, in a transaction that commits at the end of the block.

    With `create` an embedded database is made and brought to this release's schema: it is ours.
    """
    with target_of(database, embedded, create=create) as target:
        if create and embedded is not None:
            from jobs.migrate import migrate

            migrate(target.url)
        with open_connection(target) as connection:
            yield connection
