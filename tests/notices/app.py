"""The app of these tests: one kind that matters, in every pool that matters here."""

import os
import signal
from pathlib import Path

from jobs import App, Handler, Payload, PermanentError, Pool, Task

if (stop := os.environ.get("APP_IS_BROKEN_BY")) and Path(stop).exists():
    raise ImportError("this app is broken")


class Work(Payload):
    do: str = ""


SYSTEM = Task(kind="system-work", payload_type=Work, pool=Pool.SYSTEM, max_attempts=1)
IMPORTANT = Task(kind="important-work", payload_type=Work, pool=Pool.SYSTEM, max_attempts=1, important=True)
DEADLY = Task(kind="deadly", payload_type=Work, pool=Pool.INGEST, max_attempts=1)
HARMLESS = Task(kind="harmless", payload_type=Work, pool=Pool.INGEST)


async def work(payload: Work) -> None:
    match payload.do:
        case "kill the worker":
            os.kill(os.getpid(), signal.SIGKILL)
        case "fail":
            raise PermanentError("it never worked")


def die(payload: Work) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def live(payload: Work) -> None: ...


def app() -> App:
    return App(
        [Handler(SYSTEM, work), Handler(IMPORTANT, work), Handler(DEADLY, die), Handler(HARMLESS, live)],
    )


def own_kind() -> App:
    """Its kind has the name that notices are sent by."""
    return App([Handler(Task(kind="send-notice", payload_type=Work, pool=Pool.SYSTEM), work)])
