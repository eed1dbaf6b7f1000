"""An app in two versions, whose handlers write down where and when they run, by the one clock of all hosts."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from jobs import App, Handler, JobContext, Payload, Pool, Schedule, Task, Tick

JOURNAL = "HOSTS_JOURNAL"
BEAT_SECONDS = 0.02


class Stay(Payload):
    """How many seconds a job takes."""

    seconds: float = 0.0


def _task(kind: str, pool: Pool, **more: object) -> Task[Stay]:
    return Task(kind=kind, payload_type=Stay, pool=pool, **more)  # type: ignore[arg-type]


AGENT = _task("stay-agent", Pool.AGENT)
SYSTEM = _task("stay-system", Pool.SYSTEM)
INGEST = _task("stay-ingest", Pool.INGEST)
HURRIED = _task("stay-hurried", Pool.AGENT, timeout=timedelta(seconds=1), max_attempts=1)
OLD = _task("only-in-v1", Pool.AGENT)
NEW = _task("only-in-v2", Pool.AGENT)
TICK = Task(kind="tick", payload_type=Tick, pool=Pool.SYSTEM)


@dataclass(frozen=True, slots=True)
class Line:
    """Of the journal: start, beat or stop, in seconds of the monotonic clock."""

    at: float
    host: str
    job: int
    claim: int
    event: str


def read_journal(path: Path) -> list[Line]:
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [Line(float(at), host, int(job), int(claim), event) for at, host, job, claim, event in lines]


def _write(job: JobContext, event: str) -> None:
    file = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{time.monotonic()} {socket.gethostname()} {job.job_id} {job.claim} {event}\n".encode())
    finally:
        os.close(file)


@contextmanager
def _told(job: JobContext) -> Iterator[None]:
    _write(job, "start")
    try:
        yield
    finally:
        _write(job, "stop")


async def on_loop(stay: Stay, job: JobContext) -> None:
    with _told(job):
        until = time.monotonic() + stay.seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, BEAT_SECONDS))
            _write(job, "beat")


def in_process(stay: Stay, job: JobContext) -> None:
    with _told(job):
        until = time.monotonic() + stay.seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, BEAT_SECONDS))
            _write(job, "beat")


async def tick(_: Tick) -> None: ...


IN_BOTH = [Handler(AGENT, on_loop), Handler(SYSTEM, in_process), Handler(INGEST, in_process), Handler(HURRIED, on_loop)]


def v1() -> App:
    return App(handlers=[*IN_BOTH, Handler(OLD, on_loop)])


def v2() -> App:
    return App(handlers=[*IN_BOTH, Handler(NEW, on_loop)])


def ticking() -> App:
    return App(
        handlers=[*IN_BOTH, Handler(TICK, tick)], schedules=[Schedule("each-second", TICK, timedelta(seconds=1))]
    )
