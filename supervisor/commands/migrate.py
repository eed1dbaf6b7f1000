"""`oomph migrate`."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer

from supervisor.commands.database import target_of
from supervisor.commands.options import AsJson, DatabaseUrl, EmbeddedFolder, refuse
from supervisor.commands.output import print_json


def migrate(
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL instead, for whoever applies it by hand.")] = False,
    since: Annotated[
        int,
        typer.Option("--since", min=0, help="With --sql: for a database that is at this version; 0 is an empty one."),
    ] = 0,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Create or update the tables in the database.

    Safe to run again, from several hosts at once, and while workers run, also those of the release before. So migrate
    first, then replace them.
    """
    from jobs import migrate as schema

    if sql and as_json:
        refuse("--json", "SQL is no JSON; name one of --sql and --json")
    if sql:
        typer.echo(schema.script(since))
        return
    with target_of(database, embedded, create=True) as target, _busy():
        applied = schema.migrate(target.url)
        place = target.place
    if as_json:
        print_json({"database": place, "applied": applied})
        return
    for name in applied:
        typer.echo(f"applied {name}")
    if not applied:
        typer.echo(f"the database at {place} has the schema of this release already")


def _busy() -> AbstractContextManager[object]:
    """On a terminal, a sign that it works: a change of a large table may take minutes."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("migrating")
