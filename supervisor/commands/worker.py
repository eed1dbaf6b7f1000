"""`oomph worker`: everything that can be wrong is found before anything starts."""

import logging
import os
from typing import TYPE_CHECKING, Annotated

import typer

from supervisor.commands.database import NO_DATABASE, Target, open_connection, target_of
from supervisor.commands.logs import LEVELS, configure_logging
from supervisor.commands.options import AppSpec, DatabaseUrl, EmbeddedFolder, one_of

if TYPE_CHECKING:
    from jobs.app import App
    from supervisor.settings import Settings

log = logging.getLogger("oomph.worker")

NO_APP = (
    "no app is named. Either set WORKER_APP (or pass --app) to module:attribute, such as "
    "app.background.handlers:production, a jobs.App or a function that returns one"
)


def worker(
    app: AppSpec = None,
    pools: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only these pools, of agent, ingest and system.")
    ] = None,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
    drain: Annotated[bool, typer.Option("--drain", help="End once nothing is left to do.")] = False,
    log_level: Annotated[str, typer.Option(metavar="LEVEL", help=f"One of {', '.join(LEVELS)}.")] = "info",
) -> None:
    """Run jobs until told to stop by SIGTERM or Ctrl-C.

    All other settings are environment variables named WORKER_*; the README lists them.
    """
    one_of("--log-level", log_level, LEVELS)
    configure_logging(log_level)
    settings = _settings(app, pools, named_database=bool(database) or embedded is not None)

    from jobs.loading import load_app
    from supervisor.loop import run
    from supervisor.worker import Worker

    with target_of(database, embedded, create=True) as target:
        os.environ["DATABASE_URL"] = target.url  # where the app and its handlers look for it, here and in every child
        loaded = load_app(settings.worker_app)
        settings = _with_slots(settings, loaded).model_copy(update={"database_url": target.url})
        _require_schema(target, ours=embedded is not None)
        ended = run(Worker(settings, loaded, drain=drain).run())
    ended.leave()
    raise typer.Exit(ended.status)


def _settings(app: str | None, pools: str | None, *, named_database: bool) -> "Settings":
    """The settings; raises `SettingsError` with every line that is wrong, not only the first."""
    from jobs import failpoints
    from supervisor.settings import SettingsError, load_settings, unknown_variables

    for name in unknown_variables():
        log.warning("%s is not a setting and has no effect; is it misspelt?", name)
    wrong = []
    try:
        failpoints.check()
    except failpoints.FailpointError as error:
        wrong.append(str(error))
    try:
        settings = load_settings(worker_app=app, worker_pools=pools)
    except SettingsError as error:
        wrong.append(str(error))
        settings = None
    if not (app or os.environ.get("WORKER_APP")):
        wrong.append(NO_APP)
    if not (named_database or os.environ.get("DATABASE_URL")):
        wrong.append(NO_DATABASE)
    if settings is None or wrong:
        raise SettingsError("\n".join(wrong))
    return settings


def _with_slots(settings: "Settings", app: "App") -> "Settings":
    """Settle how many ingest children run at once, by what this host has. Raises `SettingsError`."""
    from jobs.task import Pool
    from supervisor.sizing import check_kinds, choose_slots, ingest_budget_mb

    slots = settings.worker_ingest_concurrency
    if Pool.INGEST in settings.worker_pools and app.kinds(Pool.INGEST):
        cores = len(os.sched_getaffinity(0))
        available_mb = ingest_budget_mb(settings)
        check_kinds({kind: handler.task.memory_mb for kind, handler in app.handlers.items()}, available_mb)
        slots = choose_slots(slots, settings.worker_ingest_memory_mb, cores, available_mb)
    return settings.model_copy(update={"worker_ingest_concurrency": max(1, slots)})


def _require_schema(target: Target, *, ours: bool) -> None:
    """Make sure that the database fits this release; bring it there if it is `ours`. Raises `SchemaError`."""
    if ours:
        from jobs.migrate import migrate

        migrate(target.url)
        typer.echo(f"DATABASE_URL={target.url}")
    with open_connection(target):
        pass
