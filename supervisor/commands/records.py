"""`oomph schedules`, `oomph workers`, `oomph audit`: lists without actions."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import typer

from supervisor.commands.database import connected
from supervisor.commands.options import AsJson, Before, DatabaseUrl, EmbeddedFolder, Limit
from supervisor.commands.output import Column, print_json, print_table, span

if TYPE_CHECKING:
    from jobs.reports import AuditRow, ScheduleRow, WorkerRow

schedules = typer.Typer(help="Schedules of the apps that run.", no_args_is_help=True)
workers = typer.Typer(help="Worker processes.", no_args_is_help=True)
audit = typer.Typer(help="Who did what.", no_args_is_help=True)


@schedules.command("list")
def list_schedules(
    limit: Limit = 100,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """List schedules with their next occurrence."""
    from jobs import reports

    with connected(database, embedded) as connection:
        rows: list[ScheduleRow] = reports.list_schedules(connection, limit=limit)
    if as_json:
        print_json(rows)
        return
    columns: list[Column[ScheduleRow]] = [
        Column("NAME", lambda row: row.name),
        Column("KIND", lambda row: row.kind),
        Column("EVERY", _every),
        Column("NEXT (UTC)", lambda row: row.next_occurrence),
        Column("LAST (UTC)", lambda row: row.last_occurrence),
        Column("MISFIRE, OVERLAP", lambda row: f"{row.misfire}, {row.overlap}"),
    ]
    print_table(columns, rows, empty="no schedules: a worker writes those of its app when it starts")


@workers.command("list")
def list_workers(
    limit: Limit = 100,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """List workers, and whether their lease holds."""
    from jobs import reports

    with connected(database, embedded) as connection:
        rows: list[WorkerRow] = reports.list_workers(connection, limit=limit)
    if as_json:
        print_json(rows)
        return
    now = datetime.now(UTC)
    columns: list[Column[WorkerRow]] = [
        Column("ID", lambda row: row.id),
        Column("STATE", _state, style=lambda row: "" if row.alive else "red"),
        Column("PID", lambda row: row.pid, right=True),
        Column("UP", lambda row: span(now - row.started_at) if row.alive else ""),
        Column("POOLS", lambda row: ",".join(row.pools)),
        Column("HOST", lambda row: row.host, flexible=True),
    ]
    print_table(columns, rows, empty="no workers: `oomph worker` starts one")


@audit.command("list")
def list_audit(
    limit: Limit = 50,
    before: Before = None,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """List who did what and why, newest first."""
    from jobs import reports

    with connected(database, embedded) as connection:
        rows: list[AuditRow] = reports.list_audit(connection, before=before, limit=limit)
    if as_json:
        print_json(rows)
        return
    columns: list[Column[AuditRow]] = [
        Column("ID", lambda row: row.id, right=True),
        Column("AT (UTC)", lambda row: row.at),
        Column("ACTOR", lambda row: row.actor),
        Column("ACTION", _action),
        Column("TARGET", lambda row: row.target),
        Column("REASON", lambda row: row.reason, flexible=True),
    ]
    print_table(columns, rows, empty="nothing was done by hand yet")


def _every(row: "ScheduleRow") -> timedelta | str | None:
    return row.every if row.cron is None else f"{row.cron} {row.timezone}"


def _state(row: "WorkerRow") -> str:
    return "alive" if row.alive else "lost"


def _action(row: "AuditRow") -> str:
    detail: object = row.detail  # of a row that was written by hand, it may be anything
    return f"{row.action} --probe" if isinstance(detail, dict) and detail.get("probe") else row.action
