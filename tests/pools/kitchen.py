"""Runs the recipes of `handlers_app` in a real pool, and looks at what they leave behind."""

import asyncio
import itertools
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from jobs.claim import ClaimedJob
from jobs.outcome import AttemptReport, Succeeded
from pools.execution import Execution, Intent
from pools.identity import mark_of
from pools.ingest import IngestPool
from pools.leftovers import snapshot, stats
from pools.options import IngestOptions
from pools.procfs import ProcessStat
from tests.pools.handlers_app import app

SPEC = "tests.pools.handlers_app:app"
_ids = itertools.count(1)


class Kitchen:
    """A started pool, and shorthand for jobs in it."""

    def __init__(self, pool: IngestPool) -> None:
        self.pool = pool
        self.progress: list[tuple[float, str]] = []

    def order(self, recipe: str, text: str = "", *, kind: str = "cook", timeout: float = 30) -> Execution:
        return self.raw_order(json.dumps({"recipe": recipe, "text": text}), kind=kind, timeout=timeout)

    def raw_order(self, payload: str, *, kind: str = "cook", timeout: float = 30) -> Execution:
        job = ClaimedJob(
            id=next(_ids),
            claim=3,
            kind=kind,
            pool="ingest",
            payload=payload,
            attempt=2,
            max_attempts=5,
            timeout=timedelta(seconds=timeout),
            organization_id="org",
        )
        return Execution(job, app.handlers[kind], lambda _, fraction, note: self.progress.append((fraction, note)))

    async def cook(self, recipe: str, text: str = "", *, kind: str = "cook", seconds: float = 30) -> AttemptReport:
        return await self.pool.run(self.order(recipe, text, kind=kind, timeout=seconds))

    async def cook_until(
        self, intent: Intent, recipe: str, ready: Path, *, kind: str = "cook"
    ) -> tuple[AttemptReport, str]:
        """Stop the job with `intent` once it has written its file; return the report and what it wrote."""
        execution = self.order(recipe, str(ready), kind=kind)
        running = asyncio.create_task(self.pool.run(execution))
        await until(lambda: text_of(ready) != "")
        execution.stop(intent)
        return await asyncio.wait_for(running, 5), text_of(ready)


def result_of(report: AttemptReport) -> str:
    """The text that a recipe returned."""
    assert isinstance(report.outcome, Succeeded), report
    return str(json.loads(report.outcome.result or "")["text"])


@asynccontextmanager
async def open_kitchen(
    *, memory_mb: int = 100, slots: int = 4, spec: str = SPEC, **options: Any
) -> AsyncIterator["Kitchen"]:
    """A pool of its own; afterwards no process of it may be left."""
    pool = IngestPool(spec, app, memory_mb=memory_mb, slots=slots, options=IngestOptions(**options))
    try:
        await pool.start()
        yield Kitchen(pool)
    finally:
        await pool.stop()
    assert job_processes() == []


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def is_gone(pid: int | str) -> bool:
    return not Path(f"/proc/{pid}").exists()


def is_dead(pid: int | str) -> bool:
    """Gone, or a zombie that somebody has yet to reap."""
    return all(stat.is_dead for stat in stats([int(pid)]))


def let_others_pass(folder: Path) -> None:
    """Let every user reach what is below a test's folder, and change nothing that is not the tests' own."""
    for parent in folder.parents:
        if parent.is_relative_to(tempfile.gettempdir()) and parent != Path(tempfile.gettempdir()):
            parent.chmod(0o755)


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something that nobody announces; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.005)


def job_processes(template: int | None = None) -> list[ProcessStat]:
    """All processes below this one that come from a job or a template, zombies too, except `template`."""
    processes = {stat.pid: stat for stat in snapshot()}
    own_mark = mark_of(os.getpid())

    def is_ours(stat: ProcessStat) -> bool:
        above: ProcessStat | None = stat
        while above is not None and above.parent != os.getpid():
            above = processes.get(above.parent)
        return above is not None

    return [
        stat
        for stat in processes.values()
        if is_ours(stat) and stat.pid != template and mark_of(stat.pid) not in (None, own_mark)
    ]


def open_descriptors() -> list[str]:
    """What this process has open, by number."""
    found = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        with suppress(FileNotFoundError):  # the one that listed the folder
            found.append(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return found
