"""The options that choose jobs, for all commands that take a filter."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from supervisor.commands import completion
from supervisor.commands.options import one_of, refuse

if TYPE_CHECKING:
    from jobs.finding import JobFilter

STATUSES = ("queued", "running", "succeeded", "dead", "cancelled")

Status = Annotated[
    str | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="queued, running, succeeded, dead or cancelled.",
        autocompletion=completion.choices(*STATUSES),
    ),
]
Kind = Annotated[
    str | None, typer.Option("--kind", metavar="KIND", help="Only this kind.", autocompletion=completion.kinds)
]
PoolName = Annotated[
    str | None,
    typer.Option("--pool", metavar="POOL", help="agent, ingest or system.", autocompletion=completion.pools),
]
Organization = Annotated[str | None, typer.Option("--organization-id", metavar="ID", help="Only this organization.")]
Worker = Annotated[UUID | None, typer.Option("--worker-id", metavar="ID", help="Only what this worker took last.")]
ScheduleName = Annotated[str | None, typer.Option("--schedule", metavar="NAME", help="Only those of this schedule.")]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only with this dedupe or concurrency key.")]
CreatedFrom = Annotated[
    str | None,
    typer.Option("--created-from", metavar="TIME", help="Only created from then on: ISO 8601, UTC without a zone."),
]
CreatedUntil = Annotated[str | None, typer.Option("--created-until", metavar="TIME", help="Only created before then.")]
FinishedFrom = Annotated[
    str | None, typer.Option("--finished-from", metavar="TIME", help="Only finished from then on.")
]
FinishedUntil = Annotated[
    str | None, typer.Option("--finished-until", metavar="TIME", help="Only finished before then.")
]


def filter_of(**given: Any) -> "JobFilter":
    """The filter of these options, by the names that `JobFilter` has for them; wrong usage where one cannot be."""
    from jobs.finding import JobFilter
    from jobs.task import Pool

    one_of("--status", given["status"], STATUSES)
    one_of("--pool", given["pool"], list(Pool))
    moments = ("created_from", "created_until", "finished_from", "finished_until")
    return JobFilter(**{**given, **{name: _moment(f"--{name.replace('_', '-')}", given[name]) for name in moments}})


def filter_text(wanted: "JobFilter") -> str:
    """Such as `status dead, kind parse`."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in wanted.given().items())


def _moment(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text.strip())
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter of one that is in no year of UTC's
        refuse(option, f"{text!r} is no moment such as 2030-01-31T13:45")
