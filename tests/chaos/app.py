"""The kinds of a chaos run. Every attempt writes into the diary that it lives, through a connection of its own."""

import asyncio
import ctypes
import os
import signal
import subprocess
import time
from datetime import timedelta

import psycopg
from pydantic import BaseModel

from jobs import App, Handler, JobContext, Overlap, Payload, PermanentError, Pool, Schedule, Snooze, Task, Tick

URL = "CHAOS_DATABASE_URL"  # past the proxies: the diary is the observer's, not part of what is broken
JOB = "CHAOS_JOB"  # in the environment of a helper process: whose it is
BEAT_SECONDS = 0.1
WRITE = "INSERT INTO chaos_diary (job_id, claim, pid, mode, event) VALUES (%s, %s, %s, %s, %s)"
EFFECT = "INSERT INTO chaos_effects VALUES (%s, %s)"


class Ordeal(Payload):
    """`do` chooses what happens, `seconds` how long it takes."""

    do: str = "wait"
    seconds: float = 0.0
    mark: str = ""


class Told(BaseModel):
    """What a handler returns. Its progress says the same, so that the journal shows who wrote what."""

    claim: int


def _task(kind: str, pool: Pool, seconds: float = 8) -> Task[Ordeal]:
    return Task(kind=kind, payload_type=Ordeal, pool=pool, max_attempts=4, timeout=timedelta(seconds=seconds))


AGENT = _task("chaos-agent", Pool.AGENT)
SYSTEM = _task("chaos-system", Pool.SYSTEM)
INGEST = _task("chaos-ingest", Pool.INGEST)
DEADLY = _task("chaos-deadly", Pool.INGEST)
HURRIED = _task("chaos-hurried", Pool.INGEST, seconds=0.5)
TICK = Task(kind="chaos-tick", payload_type=Tick, pool=Pool.SYSTEM)
SLOW_TICK = Task(kind="chaos-slow-tick", payload_type=Tick, pool=Pool.AGENT)
QUEUED_TICK = Task(kind="chaos-queued-tick", payload_type=Tick, pool=Pool.AGENT)
TASKS = {task.kind: task for task in (AGENT, SYSTEM, INGEST, DEADLY, HURRIED)}
TICKS = (TICK, SLOW_TICK, QUEUED_TICK)
GRIDS = {"every": 1.0, "skipping": 1.0, "queueing": 2.0}  # the schedules below, and their seconds
SKIPPING = frozenset({"skipping"})


async def in_coroutine(ordeal: Ordeal, job: JobContext) -> Told | None:
    async with await psycopg.AsyncConnection.connect(os.environ[URL], autocommit=True) as diary:

        async def write(event: str) -> None:
            await diary.execute(WRITE, [job.job_id, job.claim, os.getpid(), "coroutine", event])

        await write("start")
        until = time.monotonic() + ordeal.seconds
        while time.monotonic() < until:
            job.progress(0.5, f"claim {job.claim}")
            if ordeal.do == "block":
                time.sleep(BEAT_SECONDS * 5)  # noqa: ASYNC251  (the fault itself)
            await asyncio.sleep(BEAT_SECONDS)
            await write("beat")
        match ordeal.do:
            case "fail" if job.attempt < 3:
                raise RuntimeError("as asked")
            case "give up":
                raise PermanentError("as asked")
            case "snooze" if job.claim < 3:
                raise Snooze(timedelta(seconds=0.2))
            case "effect":
                await write("effect")
                async with diary.transaction():
                    await diary.execute(EFFECT, [job.job_id, job.claim])
                    await job.complete_in(diary, Told(claim=job.claim))
                return None
            case _:
                await write("end")
    return Told(claim=job.claim)


def in_thread(ordeal: Ordeal, job: JobContext) -> Told | None:
    return _live(ordeal, job, "thread")


def in_child(ordeal: Ordeal, job: JobContext) -> Told | None:
    return _live(ordeal, job, "child")


def _live(ordeal: Ordeal, job: JobContext, mode: str) -> Told | None:
    with psycopg.connect(os.environ[URL], autocommit=True) as diary:

        def write(event: str) -> None:
            diary.execute(WRITE, [job.job_id, job.claim, os.getpid(), mode, event])

        write("start")
        if ordeal.do == "helper":
            names = {**os.environ, JOB: f"{job.job_id}:{job.claim}"}
            subprocess.Popen(["sleep", "600"], start_new_session=True, env=names)
        until = time.monotonic() + ordeal.seconds
        while time.monotonic() < until:
            job.progress(0.5, f"claim {job.claim}")
            time.sleep(BEAT_SECONDS)
            write("beat")
        return _end(ordeal, job, diary, write)


def _end(
    ordeal: Ordeal, job: JobContext, diary: "psycopg.Connection[tuple[object, ...]]", write: object
) -> Told | None:
    match ordeal.do:
        case "fail" if job.attempt < 3:
            raise RuntimeError("as asked")
        case "die" if job.attempt < 3 or ordeal.mark == "always":
            write("die")  # type: ignore[operator]
            os.kill(os.getpid(), signal.SIGKILL)
        case "crash" if job.attempt < 2:
            ctypes.string_at(0)
        case "exit" if job.attempt < 2:
            os._exit(3)
        case "vanish" if job.attempt < 2:
            os._exit(0)
        case "eat" if job.attempt < 2:
            eaten = []
            while True:
                eaten.append(bytearray(16 << 20))
        case "effect":
            write("effect")  # type: ignore[operator]
            with diary.transaction():
                diary.execute(EFFECT, [job.job_id, job.claim])
                job.complete_in(diary, Told(claim=job.claim))
            return None
        case _:
            write("end")  # type: ignore[operator]
    return Told(claim=job.claim)


async def tick(_: Tick, job: JobContext) -> None:
    await in_coroutine(Ordeal(), job)


async def slow_tick(_: Tick, job: JobContext) -> None:
    await in_coroutine(Ordeal(seconds=1.5), job)


def app() -> App:
    return App(
        handlers=[
            Handler(AGENT, in_coroutine),
            Handler(SYSTEM, in_thread),
            Handler(INGEST, in_child),
            Handler(DEADLY, in_child),
            Handler(HURRIED, in_child),
            Handler(TICK, tick),
            Handler(SLOW_TICK, slow_tick),
            Handler(QUEUED_TICK, slow_tick),
        ],
        schedules=[
            Schedule("every", TICK, timedelta(seconds=1), overlap=Overlap.ALLOW),
            Schedule("skipping", SLOW_TICK, timedelta(seconds=1)),
            Schedule("queueing", QUEUED_TICK, timedelta(seconds=2), overlap=Overlap.QUEUE),
        ],
    )
