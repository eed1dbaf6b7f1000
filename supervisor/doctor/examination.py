"""The whole examination: settings, app, host, template, arithmetic, database, in this order and within one bound."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.app import App
from jobs.loading import AppError, load_app
from jobs.task import Pool
from pools.frames import Ready
from pools.options import StartMethod
from supervisor.doctor import host_checks
from supervisor.doctor.database import examine_database
from supervisor.doctor.findings import Finding, error, left_out, ok, unreadable, warning
from supervisor.doctor.host import examine_host
from supervisor.doctor.preload import fork_safety, start_template
from supervisor.embedded import EmbeddedServerError
from supervisor.errors import CommandError
from supervisor.settings import Settings, SettingsError, load_settings, unknown_variables
from supervisor.sizing import available_memory_mb, choose_slots, ingest_budget_mb
from supervisor.target import target_of

TEMPLATE_SECONDS = 120.0  # to import everything that the app preloads, as a worker gives it
LOAD_SECONDS = 120.0  # to import the app here
DATABASE_SECONDS = 60.0  # for all that is read there; what it takes where all is well is less than one
NAME_AN_APP = "Set WORKER_APP or pass --app to look at that too."


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """The worker to be: its app, or empty for none, and one database at most; else it is DATABASE_URL."""

    app: str = ""
    database: str = ""
    embedded: Path | None = None


def examine(patient: Patient) -> Iterator[Finding]:
    """Every finding, as soon as it is known. Blocks: a second where all is well, six minutes where everything hangs.

    For the main thread only, whose import of the app an alarm can bound. What hangs in a template is not imported here.
    """
    settings, findings = _examine_settings(patient.app)
    yield from findings
    with ExitStack() as stack:
        try:
            target = stack.enter_context(target_of(patient.database, patient.embedded))
            os.environ["DATABASE_URL"] = target.url  # where the app looks for it, as in a worker
        except (CommandError, EmbeddedServerError) as problem:
            yield from _examine_work(patient.app, settings)
            yield error("database", str(problem), "All that concerns the database was left out.")
            return
        yield from _examine_work(patient.app, settings)
        yield from asyncio.run(_within(DATABASE_SECONDS, examine_database(target, settings)))


def _examine_settings(app: str) -> tuple[Settings, list[Finding]]:
    """The settings, or the defaults where they are wrong."""
    findings = []
    try:
        settings = load_settings(worker_app=app or None)
        findings.append(ok("settings", "each is in its range"))
    except SettingsError as refusal:
        settings = Settings()
        told = str(refusal).replace("\n", "; ")
        findings.append(error("settings", told, "A worker does not start. What follows is for the default settings."))
    if unknown := unknown_variables():
        findings.append(
            warning("variables", f"{', '.join(unknown)}: no such setting", "It has no effect; is it misspelt?")
        )
    return settings, findings


def _examine_work(spec: str, settings: Settings) -> Iterator[Finding]:
    """The app, and this host for the children that it needs."""
    if Pool.INGEST not in settings.worker_pools:
        yield _load(spec)[1]
        yield ok("ingest", "not served (WORKER_POOLS): what only its children need was not looked at")
        return
    method = StartMethod(settings.worker_ingest_start_method)
    # Without an app, one that loads nothing still tells how this host forks.
    answer = asyncio.run(start_template(spec, method if spec else StartMethod.EXEC, TEMPLATE_SECONDS))
    if isinstance(answer, str) and spec:
        app, loaded = None, left_out("app", "a template could not load it", "See `fork safety`.")
    else:
        app, loaded = _load(spec)
    yield loaded
    if spec or isinstance(answer, str):
        yield fork_safety(method, answer)
    else:
        yield left_out("fork safety", "no app is named", NAME_AN_APP)
    if isinstance(answer, Ready):
        yield host_checks.forks(answer.forks_twice)
    yield from _examine_memory(settings, app, answer.data_mb if isinstance(answer, Ready) and app else None)


def _examine_memory(settings: Settings, app: App | None, template_mb: float | None) -> Iterator[Finding]:
    """Slots x limit, and what depends on the slots."""
    cores, limit_mb = len(os.sched_getaffinity(0)), settings.worker_ingest_memory_mb
    by_kind = {} if app is None else {kind: handler.task.memory_mb for kind, handler in app.handlers.items()}
    slots = 1
    try:
        available_mb = ingest_budget_mb(settings)
        yield host_checks.memory(
            settings,
            by_kind,
            cores=cores,
            available_mb=available_mb,
            host_mb=available_memory_mb(),
            template_mb=template_mb,
        )
        slots = choose_slots(settings.worker_ingest_concurrency, limit_mb, cores, available_mb)
    except SettingsError:
        pass  # just told: what else there is to say is said for one child
    except OSError as problem:
        yield unreadable("memory", problem)
    yield from examine_host(settings, slots)


def _load(spec: str) -> tuple[App | None, Finding]:
    if not spec:
        return None, left_out("app", "none is named", NAME_AN_APP)
    try:
        with _alarm(LOAD_SECONDS):
            app = load_app(spec)
    except (AppError, SystemExit, TimeoutError) as problem:
        return None, error("app", str(problem), "A worker does not start.")
    return app, ok("app", f"{spec}: {len(app.handlers)} kinds, {len(app.kinds(Pool.INGEST))} of them in `ingest`")


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the block, by a signal, where it takes longer."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"it is not done after {seconds:g} s")

    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, handler)


async def _within(seconds: float, findings: AsyncIterator[Finding]) -> list[Finding]:
    """What is found in that time, and that it was too short if so."""
    found = []
    try:
        async with asyncio.timeout(seconds):
            async for finding in findings:
                found.append(finding)  # noqa: PERF401  (what came before the time was over counts)
    except TimeoutError:
        found.append(error("database", f"it took more than {seconds:g} s; the rest was left out", "Is it overloaded?"))
    except (CommandError, OSError) as problem:
        found.append(error("database", str(problem) or type(problem).__name__, "The rest was left out."))
    return found
