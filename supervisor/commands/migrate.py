"""`oomph migrate`."""

from typing import Annotated

import typer

from supervisor.commands.database import target_of
from supervisor.commands.options import DatabaseUrl, EmbeddedFolder


def migrate(
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL instead, for whoever applies it by hand.")] = False,
    since: Annotated[
        int,
        typer.Option("--since", min=0, help="With --sql: for a database that is at this version; 0 is an empty one."),
    ] = 0,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Create or update the tables in the database.

    Safe to run again, from several hosts at once, and while workers run, also those of the release before. So migrate
    first, then replace them.
    """
    from jobs import migrate as schema

    if sql:
        typer.echo(schema.script(since))
        return
    with target_of(database, embedded, create=True) as target:
        applied = schema.migrate(target.url)
        place = target.place
    for name in applied:
        typer.echo(f"applied {name}")
    if not applied:
        typer.echo(f"the database at {place} has the schema of this release already")
