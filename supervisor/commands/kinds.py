"""`oomph kinds`: list, pause, resume."""

from typing import TYPE_CHECKING, Annotated

import typer

from supervisor.commands import completion
from supervisor.commands.database import connected
from supervisor.commands.options import Actor, AsJson, DatabaseUrl, EmbeddedFolder, Limit, Reason, actor_of, reason_of
from supervisor.commands.output import Column, print_json, print_table, printable, shown

if TYPE_CHECKING:
    from jobs.reports import KindRow

kinds = typer.Typer(help="Kinds of jobs, and their pauses.", no_args_is_help=True)

KindName = Annotated[str, typer.Argument(metavar="KIND", help="Which kind.", autocompletion=completion.kinds)]


@kinds.command("list")
def list_kinds(
    limit: Limit = 100,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """List kinds: paused or running, and kills in a row.

    PER ORG bounds how many jobs of one organisation run at once. KEPT is how long finished jobs stay, where a kind does
    not leave that to the settings of workers. Either is shown where a kind declares it, and always by --json.
    """
    from jobs import reports

    with connected(database, embedded) as connection:
        rows: list[KindRow] = reports.list_kinds(connection, limit=limit)
    if as_json:
        print_json(rows)
        return
    bounded = [row.max_per_organization is not None for row in rows]
    columns: list[Column[KindRow]] = [
        Column("KIND", lambda row: row.kind),
        Column("POOL", lambda row: row.pool),
        Column("STATE", _state, style=lambda row: "red" if row.paused_at else ""),
        Column("KILLS", lambda row: row.kill_streak, right=True),
        *([Column("PER ORG", lambda row: row.max_per_organization, right=True)] if any(bounded) else []),
        *([Column("KEPT", _kept)] if any(map(_kept, rows)) else []),
        Column("PAUSED (UTC)", lambda row: row.paused_at),
        Column("BY", lambda row: row.paused_by),
        Column("REASON", lambda row: row.pause_reason, flexible=True),
    ]
    print_table(columns, rows, empty="no kinds: a worker writes those of its app when it starts")
    for row in rows:
        if row.pause_reason and "\n" in row.pause_reason.strip():
            typer.echo(f"\n{shown(row.kind)} is paused: {printable(row.pause_reason.strip())}")


@kinds.command("pause")
def pause_kind(
    kind: KindName,
    actor: Actor = None,
    reason: Reason = None,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Let no job of a kind start; running ones finish."""
    from jobs import control, reports

    who, why = actor_of(actor), reason_of(reason)
    with connected(database, embedded) as connection:
        control.pause(connection, kind, actor=who, reason=why)
        known: KindRow = reports.show_kind(connection, kind)
    if as_json:
        print_json(known)
        return
    typer.echo(f"kind {shown(kind)} is paused")
    if known.paused_by != who or (known.pause_reason or "") != why.strip():
        since = f"since {known.paused_at:%Y-%m-%d %H:%M:%S %Z} by {shown(known.paused_by)}"
        typer.echo(f"it was paused already, {since}, and keeps that reason: {printable(known.pause_reason or 'none')}")
    if known.pool is None:
        typer.echo(f"note: no worker has declared a kind {printable(kind)} so far; is it spelt right?", err=True)


@kinds.command("resume")
def resume_kind(
    kind: KindName,
    probe: Annotated[
        bool, typer.Option("--probe", help="Let exactly one job through first; its success resumes the kind.")
    ] = False,
    actor: Actor = None,
    reason: Reason = None,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Let a paused kind run again, with --probe one job first."""
    from jobs import control, reports

    who, why = actor_of(actor), reason_of(reason)
    with connected(database, embedded) as connection:
        control.resume(connection, kind, actor=who, reason=why, probe=probe)
        known: KindRow = reports.show_kind(connection, kind)
    if as_json:
        print_json(known)
    elif probe:
        typer.echo(f"kind {shown(kind)} lets one job through; `oomph kinds list` shows what comes of it")
    else:
        typer.echo(f"kind {shown(kind)} runs again")


def _kept(row: "KindRow") -> str:
    times = {"succeeded": row.keep_succeeded, "dead": row.keep_dead, "cancelled": row.keep_cancelled}
    return ", ".join(
        f"{status} {shown(keep) if keep else 'for ever'}" for status, keep in times.items() if keep is not None
    )


def _state(row: "KindRow") -> str:
    if row.paused_at is None:
        return "running"
    return "probing" if row.probe or row.probe_job_id else "paused"
