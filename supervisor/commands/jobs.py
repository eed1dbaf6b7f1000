"""`oomph jobs`: list, show, retry, cancel."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from supervisor.commands.database import connected
from supervisor.commands.job_filter import (
    CreatedFrom,
    CreatedUntil,
    FinishedFrom,
    FinishedUntil,
    Key,
    Kind,
    Organization,
    PoolName,
    ScheduleName,
    Status,
    Worker,
    filter_of,
    filter_text,
)
from supervisor.commands.job_report import print_report
from supervisor.commands.many_jobs import CANCEL, RETRY, do_to_all
from supervisor.commands.options import (
    Actor,
    AsJson,
    Before,
    DatabaseUrl,
    EmbeddedFolder,
    Limit,
    Reason,
    Yes,
    actor_of,
    possible_id,
    reason_of,
    refuse,
)
from supervisor.commands.output import Column, print_json, print_table, span
from supervisor.commands.progress import progress
from supervisor.errors import CommandError

if TYPE_CHECKING:
    from jobs.finding import JobFilter
    from jobs.reports import JobReport, JobRow
    from jobs.standing import Standing

jobs = typer.Typer(help="Jobs and what happened to them.", no_args_is_help=True)

STYLES = {"running": "green", "dead": "red", "cancelled": "yellow"}

JobId = Annotated[int, typer.Argument(metavar="ID", min=1, callback=possible_id, help="Which job.")]
JobIds = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID", min=1, callback=possible_id, help="Which jobs.", show_default=False),
]
Everything = Annotated[bool, typer.Option("--all", help="All that the other options choose, instead of ids.")]


@jobs.command("list")
def list_jobs(
    status: Status = None,
    kind: Kind = None,
    pool: PoolName = None,
    organization_id: Organization = None,
    worker_id: Worker = None,
    schedule: ScheduleName = None,
    key: Key = None,
    created_from: CreatedFrom = None,
    created_until: CreatedUntil = None,
    finished_from: FinishedFrom = None,
    finished_until: FinishedUntil = None,
    limit: Limit = 50,
    before: Before = None,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """List jobs, newest first."""
    from jobs import reports

    wanted = filter_of(
        status=status,
        kind=kind,
        pool=pool,
        organization_id=organization_id,
        worker_id=worker_id,
        schedule=schedule,
        key=key,
        created_from=created_from,
        created_until=created_until,
        finished_from=finished_from,
        finished_until=finished_until,
    )
    with connected(database, embedded) as connection:
        rows: list[JobRow] = reports.list_matching(connection, wanted, before=before, limit=limit, full=as_json)
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
    job_ids: JobIds = None,
    everything: Everything = False,
    status: Status = None,
    kind: Kind = None,
    pool: PoolName = None,
    organization_id: Organization = None,
    worker_id: Worker = None,
    schedule: ScheduleName = None,
    key: Key = None,
    created_from: CreatedFrom = None,
    created_until: CreatedUntil = None,
    finished_from: FinishedFrom = None,
    finished_until: FinishedUntil = None,
    actor: Actor = None,
    reason: Reason = None,
    yes: Yes = False,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Give dead or cancelled jobs their attempts anew.

    Several are retried all or none. With --all, those that the options choose are, batch after batch, once somebody has
    agreed to their number; what was done stays done, and jobs that are refused are counted by why.
    """
    from jobs import bulk, control

    wanted = filter_of(
        status=status,
        kind=kind,
        pool=pool,
        organization_id=organization_id,
        worker_id=worker_id,
        schedule=schedule,
        key=key,
        created_from=created_from,
        created_until=created_until,
        finished_from=finished_from,
        finished_until=finished_until,
    )
    who, ids = actor_of(actor), _one_way(job_ids, everything, wanted, yes)
    if everything:
        do_to_all(
            RETRY,
            bulk.retry_matching,
            wanted,
            actor=who,
            reason=reason,
            yes=yes,
            as_json=as_json,
            database=database,
            embedded=embedded,
        )
        return
    why = reason_of(reason)
    with connected(database, embedded) as connection, progress("retrying", len(ids)) as step:
        for job_id in ids:
            control.retry(connection, job_id, actor=who, reason=why)
            step(1)
    if as_json:
        print_json([{"id": job_id, "status": "queued"} for job_id in ids])
        return
    for job_id in ids:
        typer.echo(f"job {job_id} is queued again")


@jobs.command("cancel")
def cancel_jobs(
    job_ids: JobIds = None,
    everything: Everything = False,
    status: Status = None,
    kind: Kind = None,
    pool: PoolName = None,
    organization_id: Organization = None,
    worker_id: Worker = None,
    schedule: ScheduleName = None,
    key: Key = None,
    created_from: CreatedFrom = None,
    created_until: CreatedUntil = None,
    finished_from: FinishedFrom = None,
    finished_until: FinishedUntil = None,
    actor: Actor = None,
    reason: Reason = None,
    yes: Yes = False,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Cancel queued jobs at once, running ones by a worker.

    Several are cancelled all or none. With --all, those that the options choose are, batch after batch, once somebody
    has agreed to their number; what was done stays done, and jobs that are refused are counted by why.
    """
    from jobs import bulk, control

    wanted = filter_of(
        status=status,
        kind=kind,
        pool=pool,
        organization_id=organization_id,
        worker_id=worker_id,
        schedule=schedule,
        key=key,
        created_from=created_from,
        created_until=created_until,
        finished_from=finished_from,
        finished_until=finished_until,
    )
    who, ids = actor_of(actor), _one_way(job_ids, everything, wanted, yes)
    if everything:
        do_to_all(
            CANCEL,
            bulk.cancel_matching,
            wanted,
            actor=who,
            reason=reason,
            yes=yes,
            as_json=as_json,
            database=database,
            embedded=embedded,
        )
        return
    why = reason_of(reason)
    now: dict[int, str] = {}
    with connected(database, embedded) as connection, progress("cancelling", len(ids)) as step:
        for job_id in ids:
            now[job_id] = control.cancel(connection, job_id, actor=who, reason=why)
            step(1)
    if as_json:
        print_json([{"id": job_id, "status": status} for job_id, status in now.items()])
        return
    for job_id, status in now.items():
        typer.echo(f"job {job_id} is {'running; its worker was told to end it' if status == 'running' else status}")


def _one_way(ids: list[int] | None, everything: bool, wanted: "JobFilter", yes: bool) -> list[int]:
    """The ids; wrong usage where it is not said which jobs are meant, or twice."""
    if bool(ids) == everything:
        refuse("ID...", "name jobs by their ids, or say --all and which, such as --status dead --kind parse")
    if ids and (wanted.given() or yes):
        refuse("ID...", f"{filter_text(wanted) or '--yes'} is of --all, which goes without ids")
    return ids or []


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
