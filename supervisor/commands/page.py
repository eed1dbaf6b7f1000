"""`oomph page`: the Background jobs page as a process of its own."""

from pathlib import Path
from typing import Annotated

import typer

from supervisor.commands.database import target_of
from supervisor.commands.options import DatabaseUrl, EmbeddedFolder, one_of
from supervisor.errors import CommandError
from supervisor.installation import check_name
from supervisor.logs import LEVELS, configure_logging


def page(
    host: Annotated[str, typer.Option(metavar="HOST", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65_535, help="0 takes a free one.")] = 8642,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="Who may look and act: lines of `viewer NAME TOKEN` or `owner NAME TOKEN`. Without it, "
            "OOMPH_PAGE_TOKENS may hold them, with commas between.",
            show_default=False,
        ),
    ] = None,
    actor: Annotated[
        str,
        typer.Option(
            "--actor", metavar="NAME", envvar="OOMPH_ACTOR", help="Without tokens: what the audit says of who acts."
        ),
    ] = "this host",
    path: Annotated[
        str,
        typer.Option(
            "--path", metavar="PATH", help="The path of a proxy below which the page is, and which it takes away."
        ),
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            "--name",
            metavar="NAME",
            envvar="OOMPH_PAGE_NAME",
            help="What this installation is called, such as production: for the title and header of each page.",
            show_default=False,
        ),
    ] = "",
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
    log_level: Annotated[str, typer.Option(metavar="LEVEL", help=f"One of {', '.join(LEVELS)}.")] = "info",
) -> None:
    """Serve the Background jobs page until told to stop.

    Without tokens it listens on this host only, and everybody who has an account here may look and act.
    """
    one_of("--log-level", log_level, LEVELS)
    configure_logging(log_level)
    try:
        from supervisor.page.serving import Address, choose_access, serve
    except ModuleNotFoundError as error:
        from jobs.extras import how_to_install

        raise CommandError(f"the page needs {error.name}: {how_to_install('page')}") from error
    from supervisor.target import open_connection

    try:
        check_name("--name", name)
    except ValueError as error:
        raise CommandError(str(error)) from error
    address = Address(host=host, port=port, path=path)
    access = choose_access(address, token_file, actor)
    with target_of(database, embedded) as target:
        with open_connection(target):
            pass  # a wrong address, or a database of another release, is said now and not to whoever looks first
        serve(target.url, address, access, name=name)
