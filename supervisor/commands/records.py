"""`oomph schedules`, `oomph workers`, `oomph audit`: lists, and a schedule that is run now."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from supervisor.commands.completion import choices, kinds
from supervisor.commands.database import connected
from supervisor.commands.job_report import done
from supervisor.commands.options import (
    Actor,
    AsJson,
    Before,
    DatabaseUrl,
    EmbeddedFolder,
    Limit,
    Reason,
    actor_of,
    possible_id,
    reason_of,
)
from supervisor.commands.output import Column, print_json, print_table, shown, span

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


@schedules.command("run")
def run_schedule(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which schedule.")],
    actor: Actor = None,
    reason: Reason = None,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Run a schedule now, once; its own times stay as they are.

    Where the schedule's overlap is to skip, it is refused while a job of it is queued or running.
    """
    from jobs import control

    who, why = actor_of(actor), reason_of(reason)
    with connected(database, embedded) as connection:
        job_id: int = control.run_schedule_now(connection, name, actor=who, reason=why)
    if as_json:
        print_json([{"id": job_id, "schedule": name, "status": "queued"}])
        return
    typer.echo(f"schedule {shown(name)} runs now: job {job_id}")


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
    job_id: Annotated[
        int | None,
        typer.Option(
            "--job",
            metavar="ID",
            callback=possible_id,
            help="Only what was done to this job, alone or with others.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Only what was done to this: a kind, or as the list shows it.", autocompletion=kinds
        ),
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(
            metavar="ACTION",
            help="Only this: retry, cancel, pause, resume, run now, ...",
            autocompletion=choices("retry", "cancel", "pause", "resume", "run now", "delete"),
        ),
    ] = None,
    actor: Annotated[str | None, typer.Option(metavar="NAME", help="Only what this person did.")] = None,
    limit: Limit = 50,
    before: Before = None,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """List who did what and why, newest first."""
    from jobs import reports
    from jobs.reports import AuditFilter

    wanted = AuditFilter(job_id=job_id, target=target, actor=actor, action=action)
    with connected(database, embedded) as connection:
        rows: list[AuditRow] = reports.list_audit(connection, wanted, before=before, limit=limit)
    if as_json:
        print_json(rows)
        return
    columns: list[Column[AuditRow]] = [
        Column("ID", lambda row: row.id, right=True),
        Column("AT (UTC)", lambda row: row.at),
        Column("ACTOR", lambda row: row.actor),
        Column("ACTION", done),
        Column("TARGET", lambda row: row.target),
        Column("REASON", lambda row: row.reason, flexible=True),
    ]
    print_table(
        columns, rows, empty="nothing like that was done by hand" if wanted.given() else "nothing was done by hand yet"
    )
    if len(rows) == limit:
        typer.echo(f"perhaps more: --before {rows[-1].id}", err=True)


def _every(row: "ScheduleRow") -> timedelta | str | None:
    return row.every if row.cron is None else f"{row.cron} {row.timezone}"


def _state(row: "WorkerRow") -> str:
    return "alive" if row.alive else "lost"
