"""The app of the worker tests: kinds that do on demand what real ones do by accident."""

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import subprocess
import threading
import time
from datetime import timedelta

import psycopg
from pydantic import BaseModel, model_serializer

from jobs import App, Handler, JobContext, Payload, PermanentError, Pool, Schedule, Snooze, Task, Tick

log = logging.getLogger("app")


class Work(Payload):
    """`do` chooses what happens, `seconds` how long, `text` is data for it."""

    do: str = "nothing"
    seconds: float = 0
    text: str = ""


class Answer(BaseModel):
    pid: int
    text: str = ""


class Explosive(BaseModel):
    """A result that ends the process of whoever writes it down."""

    @model_serializer
    def explode(self) -> str:
        raise SystemExit(3)


def task(kind: str, pool: Pool, **more: object) -> Task[Work]:
    return Task(kind=kind, payload_type=Work, pool=pool, **more)  # type: ignore[arg-type]


AGENT = task("agent-work", Pool.AGENT)
SYSTEM = task("system-work", Pool.SYSTEM)
INGEST = task("ingest-work", Pool.INGEST)
HURRIED_AGENT = task("hurried-agent", Pool.AGENT, timeout=timedelta(seconds=0.5), max_attempts=2)
HURRIED_SYSTEM = task("hurried-system", Pool.SYSTEM, timeout=timedelta(seconds=0.5), max_attempts=1)
HURRIED_INGEST = task("hurried-ingest", Pool.INGEST, timeout=timedelta(seconds=1), max_attempts=1)
DEADLY = task("deadly", Pool.INGEST, max_attempts=3)
BIG = task("big", Pool.INGEST, memory_mb=400)
ONCE = task("once", Pool.INGEST, max_attempts=1)
TICKED = Task(kind="ticked", payload_type=Tick, pool=Pool.SYSTEM)


class HostileNotes(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise ValueError("no notes for you")


class HostileMessage(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


def indescribable(do: str) -> Exception:
    match do:
        case "raise odd syntax error":
            return SyntaxError("bad template", ("t.html", 1, 1, b"{% x %}"))
        case "raise with hostile notes":
            return HostileNotes()
        case _:
            return HostileMessage()


def tell_begun(job: JobContext) -> None:
    """For `tests.worker.begun`."""
    log.info("job %d has begun, claim %d", job.job_id, job.claim)


async def on_loop(payload: Work, job: JobContext) -> Answer:
    tell_begun(job)
    match payload.do:
        case "wait":
            await asyncio.sleep(payload.seconds)
        case "block":
            time.sleep(payload.seconds)  # noqa: ASYNC251  (the fault that this kind is for)
        case "log":
            await asyncio.to_thread(log.warning, payload.text)
            raise RuntimeError(payload.text)
        case "fail":
            raise RuntimeError(payload.text)
        case "wait and fail":
            await asyncio.sleep(payload.seconds)
            raise RuntimeError(payload.text)
        case "fail once" if job.attempt == 1:
            raise RuntimeError("the first time")
        case "raise odd syntax error" | "raise with hostile notes" | "raise with hostile message":
            raise indescribable(payload.do)
        case "sleep in the default executor":
            await asyncio.to_thread(time.sleep, 300)
        case "ignore the cancellation":
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(300)
        case "start a thread for ever":
            threading.Thread(target=time.sleep, args=[300]).start()
        case "cancel every task":
            for found in asyncio.all_tasks():
                found.cancel()
            await asyncio.sleep(300)
        case "exit":
            raise SystemExit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "return a dict":
            return {"not": "a model"}  # type: ignore[return-value]
        case "return what explodes":
            return Explosive()  # type: ignore[return-value]
        case "give up":
            raise PermanentError(payload.text)
        case "snooze" if job.claim == 1:
            raise Snooze(timedelta(seconds=0.1))
        case "progress":
            job.progress(0.5, "half way")
            await asyncio.sleep(payload.seconds)
        case "complete in and go on":
            async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"]) as connection:
                await job.complete_in(connection)
            job.progress(1.0, "afterwards")
            await asyncio.sleep(payload.seconds)
            async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"]) as connection:
                await connection.execute("INSERT INTO effects VALUES (%s)", [job.job_id])
        case "complete in" | "complete in and roll back":
            async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"]) as connection:
                await connection.execute("INSERT INTO effects VALUES (%s)", [job.job_id])
                await job.complete_in(connection)
                if payload.do.endswith("roll back"):
                    await connection.rollback()
    return Answer(pid=os.getpid(), text=payload.text)


def in_thread(payload: Work, job: JobContext) -> Answer:
    tell_begun(job)
    if payload.do == "wait":
        time.sleep(payload.seconds)
    if payload.do == "log":
        log.warning(payload.text)
    return Answer(pid=os.getpid(), text=payload.text)


def in_child(payload: Work, job: JobContext) -> Answer:
    match payload.do:
        case "wait":
            time.sleep(payload.seconds)
        case "wait once" if job.attempt == 1:
            time.sleep(payload.seconds)
        case "print":
            print(payload.text, flush=True)
            os.write(2, b"from stderr\n")
            ctypes.CDLL(None).puts(b"from a C library")
            ctypes.CDLL(None).fflush(None)
        case "log":
            log.warning(payload.text)
        case "be killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "be killed once" if job.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case "crash":
            ctypes.string_at(0)
        case "eat":
            eaten = []
            while True:
                eaten.append(bytearray(16 << 20))
        case "read the environment":
            return Answer(pid=os.getpid(), text=os.environ.get(payload.text, "not there"))
        case "forge a result":
            body = json.dumps({"frame": "success", "result": payload.text}).encode()
            os.write(job_socket(), len(body).to_bytes(4, "big") + body)
            os._exit(7)
        case "leave a process":
            subprocess.Popen(["sleep", "300"], start_new_session=True)
        case "fail":
            raise RuntimeError(payload.text)
        case "raise odd syntax error" | "raise with hostile notes" | "raise with hostile message":
            raise indescribable(payload.do)
        case "progress":
            job.progress(0.25, "a quarter")
            time.sleep(payload.seconds)
    return Answer(pid=os.getpid(), text=payload.text)


def job_socket() -> int:
    names = {int(name): os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")[:-1]}
    return next(number for number, target in names.items() if target.startswith("socket:"))


async def ticked(payload: Tick) -> None:
    del payload


def app() -> App:
    return App(
        handlers=[
            Handler(AGENT, on_loop),
            Handler(HURRIED_AGENT, on_loop),
            Handler(SYSTEM, in_thread),
            Handler(HURRIED_SYSTEM, in_thread),
            Handler(INGEST, in_child),
            Handler(HURRIED_INGEST, in_child),
            Handler(DEADLY, in_child),
            Handler(BIG, in_child),
            Handler(ONCE, in_child),
            Handler(TICKED, ticked),
        ],
        schedules=[Schedule("every-second", TICKED, timedelta(seconds=1))],
    )
