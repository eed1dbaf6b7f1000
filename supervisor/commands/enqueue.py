"""`oomph enqueue`."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from supervisor.commands.completion import choices, kinds, pools
from supervisor.commands.database import connected
from supervisor.commands.options import AppSpec, AsJson, DatabaseUrl, EmbeddedFolder, one_of, refuse
from supervisor.commands.output import print_json
from supervisor.errors import CommandError

if TYPE_CHECKING:
    from jobs.connection import Program

_DELAY = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the options say about every job of one call."""

    organization_id: str | None
    dedupe_key: str | None
    dedupe_active: bool
    concurrency_key: str | None
    run_after: datetime | timedelta | None
    priority: str | None
    pool: str | None


def enqueue(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Of what kind they are.", autocompletion=kinds)],
    payloads: Annotated[list[str], typer.Argument(metavar="JSON", help="A JSON object a job.")],
    organization_id: Annotated[str | None, typer.Option(metavar="ID", help="Whose jobs they are.")] = None,
    dedupe_key: Annotated[str | None, typer.Option(metavar="KEY", help="At most one queued job of this key.")] = None,
    dedupe_active: Annotated[
        bool, typer.Option("--dedupe-active", help="A running job of the dedupe key counts too.")
    ] = False,
    concurrency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="At most one running job of this key.")
    ] = None,
    run_after: Annotated[
        str | None, typer.Option(metavar="WHEN", help="A delay such as 90s, 10m, 2h, 1d, or 2030-01-31T08:00Z.")
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="interactive, default or bulk.",
            autocompletion=choices("interactive", "default", "bulk"),
        ),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            metavar="POOL", help="agent, ingest or system; where no worker declared the kind.", autocompletion=pools
        ),
    ] = None,
    app: AppSpec = None,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Put jobs into the queue, all in one transaction.

    With an app (--app or WORKER_APP) payloads are validated and defaults come from its declaration; without one, from
    what the last worker published.
    """
    from jobs.connection import run
    from jobs.task import Pool, Priority

    one_of("--pool", pool, list(Pool))
    one_of("--priority", priority, [each.name.lower() for each in Priority])
    if dedupe_active and dedupe_key is None:
        refuse("--dedupe-active", "it needs --dedupe-key")
    wanted = Wanted(
        organization_id=organization_id,
        dedupe_key=dedupe_key,
        dedupe_active=dedupe_active,
        concurrency_key=concurrency_key,
        run_after=_moment(run_after),
        priority=priority,
        pool=pool,
    )
    objects = [_object(number, text) for number, text in enumerate(payloads, start=1)]
    with connected(database, embedded, create=True) as connection:
        if app:
            ids = _enqueue_declared(connection, app, kind, objects, wanted)
        else:
            ids = run(connection, _enqueue_by_name(kind, objects, wanted))
    if as_json:
        print_json([{"id": job_id, "kind": kind} for job_id in ids])
        return
    for job_id in ids:
        taken = f"not queued: a job of kind {kind} holds the dedupe key {dedupe_key}"
        typer.echo(taken if job_id is None else f"job {job_id} is queued")


def _enqueue_declared(
    connection: Any, spec: str, kind: str, objects: Sequence[Mapping[str, Any]], wanted: Wanted
) -> Any:
    from pydantic import ValidationError

    from jobs.enqueue import Job, enqueue_many
    from jobs.loading import load_app
    from jobs.task import Priority
    from pools.errors import invalid_payload

    handlers = load_app(spec).handlers
    if kind not in handlers:
        known = ", ".join(sorted(handlers)) or "no kind at all"
        raise CommandError(
            f"the app {spec} has no kind {kind!r}; it has {known}. Without --app and WORKER_APP any goes"
        )
    task = handlers[kind].task
    if wanted.pool not in (None, task.pool):
        raise CommandError(f"the app {spec} declares {kind} for the pool {task.pool}; leave --pool {wanted.pool} out")
    jobs = []
    for number, given in enumerate(objects, start=1):
        try:
            payload = task.payload_type.model_validate_json(json.dumps(given))
        except ValidationError as error:
            raise CommandError(f"payload {number}: {invalid_payload(error).message}") from None
        jobs.append(
            Job(
                payload=payload,
                organization_id=wanted.organization_id,
                dedupe_key=wanted.dedupe_key,
                dedupe_active=wanted.dedupe_active,
                concurrency_key=wanted.concurrency_key,
                run_after=wanted.run_after,
                priority=None if wanted.priority is None else Priority[wanted.priority.upper()],
            )
        )
    try:
        return enqueue_many(connection, task, jobs)
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error


def _enqueue_by_name(kind: str, objects: Sequence[Mapping[str, Any]], wanted: Wanted) -> "Program[list[int | None]]":
    from jobs.connection import Statement
    from jobs.sql import statement
    from jobs.task import Priority
    from jobs.tracing import current_trace

    ids: list[int | None] = []
    for given in objects:
        rows = yield Statement(
            statement("enqueue_by_name"),
            {
                "kind": kind,
                "payload": json.dumps(given),
                "pool": wanted.pool,
                "priority": None if wanted.priority is None else int(Priority[wanted.priority.upper()]),
                "run_after": wanted.run_after if isinstance(wanted.run_after, datetime) else None,
                "delay": wanted.run_after if isinstance(wanted.run_after, timedelta) else timedelta(0),
                "organization_id": wanted.organization_id,
                "dedupe_key": wanted.dedupe_key,
                "dedupe_active": wanted.dedupe_active,
                "concurrency_key": wanted.concurrency_key,
                "trace_context": current_trace(),
            },
        )
        ids.append(rows[0][0])
    return ids


def _object(number: int, text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CommandError(f"payload {number} is not JSON: {error}. Quote it for the shell: '{{\"id\": 1}}'") from None
    if not isinstance(value, dict):
        raise CommandError(f"payload {number} is {text[:60]}; a payload is a JSON object, such as '{{\"id\": 1}}'")
    return value


def _moment(text: str | None) -> datetime | timedelta | None:
    if text is None:
        return None
    if delay := _DELAY.fullmatch(text.strip()):
        try:
            return timedelta(seconds=float(delay[1]) * _SECONDS[delay[2]])
        except OverflowError:
            refuse("--run-after", f"{text!r} is too long")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        refuse("--run-after", f"{text!r} is neither a delay such as 90s, 10m, 2h or 1d nor a moment in ISO 8601")
    if moment.utcoffset() is None:
        refuse("--run-after", f"{text!r} has no time zone; append Z for UTC, or an offset such as +02:00")
    return moment
