"""`oomph notices`: what the owners are told."""

from typing import TYPE_CHECKING, Annotated

import typer

from supervisor.commands.database import connected
from supervisor.commands.options import AsJson, Before, DatabaseUrl, EmbeddedFolder, Limit, possible_id, refuse
from supervisor.commands.output import Column, print_json, print_table

if TYPE_CHECKING:
    from jobs.reports import NoticeRow

notices = typer.Typer(help="What the owners are told.", no_args_is_help=True)

STYLES = {"critical": "red", "warning": "yellow"}


@notices.command("list")
def list_notices(
    unread: Annotated[bool, typer.Option("--unread", help="Only those that nobody has read.")] = False,
    limit: Limit = 50,
    before: Before = None,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """List what the owners are told, newest first."""
    from jobs import reports

    with connected(database, embedded) as connection:
        rows: list[NoticeRow] = reports.list_notices(connection, unread=unread, before=before, limit=limit)
    if as_json:
        print_json(rows)
        return
    columns: list[Column[NoticeRow]] = [
        Column("ID", lambda row: row.id, right=True),
        Column("AT (UTC)", lambda row: row.at),
        Column("SEVERITY", lambda row: row.severity, style=lambda row: STYLES.get(row.severity, "")),
        Column("READ", lambda row: row.read_at is not None),
        Column("SENT", _sent, style=lambda row: "red" if _count(row, "failed") else ""),
        Column("SUBJECT", lambda row: row.subject, flexible=True),
    ]
    print_table(columns, rows, empty="no unread notices" if unread else "no notices: nothing went wrong so far")


@notices.command("read")
def read_notices(
    ids: Annotated[
        list[int] | None, typer.Argument(metavar="ID...", callback=possible_id, help="Which.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are unread.")] = False,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Mark notices as read."""
    from jobs.notices import mark_read

    if bool(ids) == everything:
        refuse("ID", "name the notices, or pass --all; one of the two")
    with connected(database, embedded) as connection:
        count: int = mark_read(connection, None if everything else ids)
    if as_json:
        print_json({"marked": count})
    else:
        typer.echo(f"marked as read: {count}")


def _sent(row: "NoticeRow") -> str:
    """Such as `2 of 3, 1 failed`; empty where nobody is to be told."""
    if not row.deliveries:
        return ""
    failed = _count(row, "failed")
    return f"{_count(row, 'sent')} of {len(row.deliveries)}" + (f", {failed} failed" if failed else "")


def _count(row: "NoticeRow", state: str) -> int:
    return sum(delivery["state"] == state for delivery in row.deliveries)
