"""`oomph jobs`: list, show, retry, cancel."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from supervisor.commands.completion import choices, kinds, pools
from supervisor.commands.database import connected
from supervisor.commands.job_report import print_report
from supervisor.commands.options import (
    Actor,
    AsJson,
    Before,
    DatabaseUrl,
    EmbeddedFolder,
    Limit,
    Reason,
    actor_of,
    one_of,
    possible_id,
)
from supervisor.commands.output import Column, print_json, print_table, span
from supervisor.commands.progress import progress
from supervisor.errors import CommandError

if TYPE_CHECKING:
    from jobs.reports import JobReport, JobRow
    from jobs.standing import Standing

jobs = typer.Typer(help="Jobs and what happened to them.", no_args_is_help=True)

STYLES = {"running": "green", "dead": "red", "cancelled": "yellow"}

JobId = Annotated[int, typer.Argument(metavar="ID", min=1, callback=possible_id, help="Which job.")]
JobIds = Annotated[list[int], typer.Argument(metavar="ID", min=1, callback=possible_id, help="Which jobs.")]


@jobs.command("list")
def list_jobs(
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS",
            help="queued, running, succeeded, dead or cancelled.",
            autocompletion=choices("queued", "running", "succeeded", "dead", "cancelled"),
        ),
    ] = None,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="Only this kind.", autocompletion=kinds)] = None,
    pool: Annotated[
        str | None, typer.Option(metavar="POOL", help="agent, ingest or system.", autocompletion=pools)
    ] = None,
    organization_id: Annotated[str | None, typer.Option(metavar="ID", help="Only this organization.")] = None,
    limit: Limit = 50,
    before: Before = None,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """List jobs, newest first."""
    from jobs import reports
    from jobs.task import Pool

    one_of("--status", status, reports.STATUSES)
    one_of("--pool", pool, list(Pool))
    with connected(database, embedded) as connection:
        rows: list[JobRow] = reports.list_jobs(
            connection,
            status=status,
            kind=kind,
            pool=pool,
            organization_id=organization_id,
            before=before,
            limit=limit,
            full=as_json,
        )
    if as_json:
        print_json(rows)
        return
    now = datetime.now(UTC)
    columns: list[Column[JobRow]] = [
        Column("ID", lambda row: row.id, right=True),
        Column("KIND", lambda row: row.kind),
        Column("POOL", lambda row: row.pool),
        Column("STATUS", lambda row: row.status, style=lambda row: STYLES.get(row.status, "")),
        Column("TRY", lambda row: f"{row.attempt}/{row.max_attempts}", right=True),
        Column("CREATED (UTC)", lambda row: row.created_at),
        Column("NOTE", lambda row: _note(row, now), flexible=True),
    ]
    print_table(columns, rows, empty="no such jobs")
    if len(rows) == limit:
        typer.echo(f"perhaps more: --before {rows[-1].id}", err=True)


@jobs.command("show")
def show_job(
    job_id: JobId,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Show a job: payload, result, every failed attempt."""
    from jobs import reports
    from jobs.standing import standing

    with connected(database, embedded) as connection:
        report: JobReport | None = reports.show_job(connection, job_id)
        stands: Standing | None = standing(connection, job_id)
    if report is None:
        raise CommandError(f"job {job_id} does not exist")
    print_report(report, stands, as_json=as_json)


@jobs.command("retry")
def retry_jobs(
    job_ids: JobIds,
    actor: Actor = None,
    reason: Reason = "",
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Give dead or cancelled jobs their attempts anew.

    Several are retried all or none.
    """
    from jobs import control

    who = actor_of(actor)
    with connected(database, embedded) as connection, progress("retrying", len(job_ids)) as step:
        for job_id in job_ids:
            control.retry(connection, job_id, actor=who, reason=reason)
            step()
    if as_json:
        print_json([{"id": job_id, "status": "queued"} for job_id in job_ids])
        return
    for job_id in job_ids:
        typer.echo(f"job {job_id} is queued again")


@jobs.command("cancel")
def cancel_jobs(
    job_ids: JobIds,
    actor: Actor = None,
    reason: Reason = "",
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Cancel queued jobs at once, running ones by a worker.

    Several are cancelled all or none.
    """
    from jobs import control

    who = actor_of(actor)
    now: dict[int, str] = {}
    with connected(database, embedded) as connection, progress("cancelling", len(job_ids)) as step:
        for job_id in job_ids:
            now[job_id] = control.cancel(connection, job_id, actor=who, reason=reason)
            step()
    if as_json:
        print_json([{"id": job_id, "status": status} for job_id, status in now.items()])
        return
    for job_id, status in now.items():
        typer.echo(f"job {job_id} is {'running; its worker was told to end it' if status == 'running' else status}")


def _note(row: "JobRow", now: datetime) -> str | None:
    """The one thing about a job that its other columns do not say."""
    from jobs.reports import error_line

    if row.status == "running":
        if row.cancel_requested_at:
            return "to be cancelled"
        done = None if row.progress is None else f"{row.progress:.0%} {row.progress_note or ''}"
        return done or (f"for {span(now - row.started_at)}" if row.started_at else None)
    error = error_line(row.error) if row.error is not None else None
    if row.status == "queued" and row.kind_paused:
        return "its kind is paused" + (f"; {error}" if error else "")
    if row.status == "queued" and row.blocked:
        return f"waits for its key {row.concurrency_key}"
    if error is not None and row.status != "succeeded":
        return error
    if row.status == "queued" and row.run_after > now:
        return f"due in {span(row.run_after - now)}"
    return None
