"""Options that several commands share, each written once."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from supervisor.commands.asking import ask, can_be_asked

LAST_ID = 2**63 - 1  # of any row: the database compares with no greater number


def possible_id(value: int | list[int] | None) -> int | list[int] | None:
    """`value`, one id or several; wrong usage for a number that none can be. Typer's own bounds would fill the help."""
    for number in value if isinstance(value, list) else [value or 0]:
        if not 0 <= number <= LAST_ID:
            raise typer.BadParameter(f"{number} is no id; the last there can be is {LAST_ID}")
    return value


DatabaseUrl = Annotated[
    str, typer.Option("--database", metavar="URL", help="The database, instead of DATABASE_URL.", show_default=False)
]
EmbeddedFolder = Annotated[
    Path | None,
    typer.Option("--embedded", metavar="DIR", help="Use the embedded PostgreSQL of this folder.", show_default=False),
]
AppSpec = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:ATTRIBUTE", envvar="WORKER_APP", help="The app.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most this many rows.")]
Before = Annotated[
    int | None,
    typer.Option(
        "--before",
        metavar="ID",
        callback=possible_id,
        help="The next page: only rows before this id.",
        show_default=False,
    ),
]
Actor = Annotated[
    str | None,
    typer.Option("--actor", metavar="NAME", envvar="OOMPH_ACTOR", help="Who does this.", show_default=False),
]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason", metavar="TEXT", help="Why, for the audit; a terminal is asked for it.", show_default=False
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="With --all: do not ask, neither whether nor why.")]


def actor_of(actor: str | None) -> str:
    """The actor of an action; wrong usage without one."""
    if actor is None:
        refuse("--actor", "who does this? Name yourself with --actor NAME, or set OOMPH_ACTOR; it goes into the audit")
    return actor


def reason_of(reason: str | None) -> str:
    """The reason of an action. On a terminal it is asked for, where nothing was said of it; Enter gives none."""
    if reason is not None:
        return reason
    if not can_be_asked():
        return ""
    return ask("Why, for the audit? (Enter: no reason)")


def one_of(option: str, value: str | None, allowed: Iterable[str]) -> str | None:
    """`value`, if it is None or allowed; wrong usage otherwise."""
    choices = list(allowed)
    if value is not None and value not in choices:
        refuse(option, f"{value!r} is not one of {', '.join(choices)}")
    return value


def refuse(option: str, why: str) -> NoReturn:
    """End with status 2: the command line itself is wrong."""
    raise typer.BadParameter(why, param_hint=option)


def refuse_two_databases(database: str, embedded: Path | None) -> None:
    """Wrong usage where both options name one."""
    if database and embedded is not None:
        refuse("--embedded", "there is --database too; name one database")
