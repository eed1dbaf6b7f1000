"""The start of a worker: everything that can be wrong is found before anything runs.

Nothing here imports the command line's library: an idle worker would keep megabytes of it for nothing.
"""

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.logs import configure_logging
from supervisor.notify_socket import NotifySocket
from supervisor.target import NO_DATABASE, Target, open_connection, target_of

if TYPE_CHECKING:
    from jobs.app import App
    from supervisor.settings import Settings
    from supervisor.tracing import Tracing

log = logging.getLogger("oomph.worker")

NO_APP = (
    "no app is named. Either set WORKER_APP (or pass --app) to module:attribute, such as "
    "app.background.handlers:production, a jobs.App or a function that returns one"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line may say about a worker. `log_level` is one of `supervisor.logs.LEVELS`.

    Of `database` and `embedded` one is given at most; without either it is DATABASE_URL.
    """

    app: str | None = None
    pools: str | None = None
    database: str = ""
    embedded: Path | None = None
    drain: bool = False
    log_level: str = "info"

    def arguments(self) -> list[str]:
        """These options as the command line writes them."""
        given = {"app": self.app, "pools": self.pools, "database": self.database, "embedded": self.embedded}
        valued = [f"--{name}={value}" for name, value in given.items() if value]
        return [*valued, *(["--drain"] if self.drain else []), f"--log-level={self.log_level}"]


def serve(options: Options) -> int:
    """Run jobs until told to stop by SIGTERM or Ctrl-C; returns the exit status.

    Raises what `supervisor.errors.explain` knows where something is wrong; nothing is left running then.
    """
    configure_logging(options.log_level, os.environ.get("WORKER_LOG_FORMAT", ""))
    notify = NotifySocket.take(os.environ)
    embedded = options.embedded is not None
    settings = _settings(options.app, options.pools, named_database=bool(options.database), embedded=embedded)

    from jobs.loading import load_app
    from supervisor.loop import run
    from supervisor.worker import Worker

    with target_of(options.database, options.embedded, create=True) as target:
        os.environ["DATABASE_URL"] = target.url  # where the app and its handlers look for it, here and in every child
        loaded = load_app(settings.worker_app)
        settings = _with_slots(settings, loaded).model_copy(update={"database_url": target.url})
        _require_schema(target, ours=options.embedded is not None)
        tracing = _tracing()
        ended = run(Worker(settings, loaded, drain=options.drain, notify=notify, tracing=tracing).run())
    if tracing is not None:
        tracing.close()
    ended.leave()
    return ended.status


def _settings(app: str | None, pools: str | None, *, named_database: bool, embedded: bool) -> "Settings":
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
    if not (named_database or embedded or os.environ.get("DATABASE_URL")):
        wrong.append(NO_DATABASE)
    if embedded and settings is not None and settings.worker_ingest_user:
        wrong.append(
            f"WORKER_INGEST_USER={settings.worker_ingest_user} does not go with --embedded: only the server's own user "
            "may enter the folder of its socket; leave one of the two out, or name a database by DATABASE_URL"
        )
    if settings is None or wrong:
        raise SettingsError("\n".join(wrong))
    return settings


def _with_slots(settings: "Settings", app: "App") -> "Settings":
    """Settle how many ingest children run at once, by what this host has. Raises `SettingsError`."""
    from jobs.task import Pool

    slots = settings.worker_ingest_concurrency
    if Pool.INGEST in settings.worker_pools and app.kinds(Pool.INGEST):
        from supervisor.sizing import check_kinds, choose_slots, ingest_budget_mb

        cores = len(os.sched_getaffinity(0))
        available_mb = ingest_budget_mb(settings)
        check_kinds({kind: handler.task.memory_mb for kind, handler in app.handlers.items()}, available_mb)
        slots = choose_slots(slots, settings.worker_ingest_memory_mb, cores, available_mb)
    return settings.model_copy(update={"worker_ingest_concurrency": max(1, slots)})


def _tracing() -> "Tracing | None":
    """Spans, where the app that was loaded has a provider for them, or the environment names a collector."""
    from jobs.extras import how_to_install
    from jobs.tracing import environment_asks_for_traces

    if "opentelemetry.trace" not in sys.modules and not environment_asks_for_traces():
        return None
    try:
        from pools.tracing import provider
        from supervisor.tracing import Tracing

        found = provider()
    except ImportError as error:
        log.warning("no traces: OTEL_* asks for them, but %s is missing; %s", error.name, how_to_install("otel"))
        return None
    return None if found is None else Tracing(found)


def _require_schema(target: Target, *, ours: bool) -> None:
    """Make sure that the database fits this release; bring it there if it is `ours`. Raises `SchemaError`."""
    if ours:
        from jobs.migrate import migrate

        migrate(target.url)
        print(f"DATABASE_URL={target.url}", flush=True)
    with open_connection(target):
        pass
