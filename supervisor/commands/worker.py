"""`oomph worker`, as the help shows it; what its plain form does is in `supervisor.commands.plain_worker`."""

import os
from typing import Annotated

import typer

from supervisor.commands.completion import choices
from supervisor.commands.options import AppSpec, DatabaseUrl, EmbeddedFolder, one_of, refuse_two_databases
from supervisor.logs import LEVELS, configure_logging
from supervisor.serve import Options, serve


def worker(
    app: AppSpec = None,
    pools: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only these pools, of agent, ingest and system.")
    ] = None,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
    drain: Annotated[bool, typer.Option("--drain", help="End once nothing is left to do.")] = False,
    reload: Annotated[
        bool, typer.Option("--reload", help="For development: start anew when a .py of the working folder changes.")
    ] = False,
    log_level: Annotated[
        str,
        typer.Option(metavar="LEVEL", help=f"One of {', '.join(LEVELS)}.", autocompletion=choices(*LEVELS)),
    ] = "info",
) -> None:
    """Run jobs until told to stop by SIGTERM or Ctrl-C.

    All other settings are environment variables named WORKER_*; docs/reference/settings.md lists them.
    """
    one_of("--log-level", log_level, LEVELS)
    refuse_two_databases(database, embedded)
    options = Options(app=app, pools=pools, database=database, embedded=embedded, drain=drain, log_level=log_level)
    if reload:
        from supervisor.reload import serve_reloading

        configure_logging(log_level, os.environ.get("WORKER_LOG_FORMAT", ""))
        raise typer.Exit(serve_reloading(options.arguments()))
    raise typer.Exit(serve(options))
