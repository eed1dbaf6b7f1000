"""The tree of commands, in the order in which a newcomer needs them."""

from typing import Annotated

import typer

from supervisor.commands.doctor import doctor
from supervisor.commands.documents import documents
from supervisor.commands.enqueue import enqueue
from supervisor.commands.group import OomphGroup
from supervisor.commands.ingest import ingest, reindex
from supervisor.commands.jobs import jobs
from supervisor.commands.kinds import kinds
from supervisor.commands.migrate import migrate
from supervisor.commands.notices import notices
from supervisor.commands.page import page
from supervisor.commands.records import audit, schedules, workers
from supervisor.commands.search import search
from supervisor.commands.top import top
from supervisor.commands.worker import worker

START = "Start"
WORK = "Give it work"
LOOK = "See and act"

cli = typer.Typer(
    name="oomph",
    cls=OomphGroup,
    help="Oomph: a PostgreSQL job worker that survives the jobs it runs.",
    epilog="`oomph COMMAND --help` tells more. The database is DATABASE_URL, --database URL or --embedded DIR.\n\n"
    "Exit status: 0 done, 1 refused or failed, 2 wrong usage, 75 try again (a worker whose loop was blocked while it "
    "lost its lease), 130 ended by Ctrl-C.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"oomph {version('oomph')}")
        raise typer.Exit


@cli.callback()
def oomph(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options of `oomph` itself."""


cli.command("migrate", rich_help_panel=START)(migrate)
cli.command("worker", rich_help_panel=START)(worker)
cli.command("doctor", rich_help_panel=START)(doctor)
cli.command("enqueue", rich_help_panel=WORK)(enqueue)
cli.command("ingest", rich_help_panel=WORK)(ingest)
cli.command("search", rich_help_panel=WORK)(search)
cli.command("reindex", rich_help_panel=WORK)(reindex)
cli.command("top", rich_help_panel=LOOK)(top)
cli.command("page", rich_help_panel=LOOK)(page)
cli.add_typer(documents, name="documents", rich_help_panel=LOOK)
cli.add_typer(jobs, name="jobs", rich_help_panel=LOOK)
cli.add_typer(kinds, name="kinds", rich_help_panel=LOOK)
cli.add_typer(schedules, name="schedules", rich_help_panel=LOOK)
cli.add_typer(workers, name="workers", rich_help_panel=LOOK)
cli.add_typer(notices, name="notices", rich_help_panel=LOOK)
cli.add_typer(audit, name="audit", rich_help_panel=LOOK)
