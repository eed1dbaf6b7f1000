"""An app whose jobs do all they can to tell their secrets."""

import asyncio
import ctypes
import logging
import os
import sys
import threading
import time
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, Secret, SecretStr, TypeAdapter

from jobs import App, Handler, JobContext, Payload, Pool, Snooze, Task

log = logging.getLogger("app")

CUT_AT = 1_900  # characters before a secret in a message, so that the bound of a message falls into it


class Account(Payload):
    password: SecretStr


class Login(Payload):
    do: str
    token: SecretStr
    account: Account
    pin: Secret[int]
    plain: str = ""


class Told(BaseModel):
    text: str
    by_name: dict[str, Any]


def task(pool: Pool) -> Task[Login]:
    return Task(
        kind=f"{pool}-login",
        payload_type=Login,
        pool=pool,
        max_attempts=1,
        timeout=timedelta(seconds=2),
        important=True,
        redact=["plain"],
    )


TASKS = {pool: task(pool) for pool in Pool}


def secrets_of(payload: Login) -> dict[str, Any]:
    return {
        "token": payload.token.get_secret_value(),
        "password": payload.account.password.get_secret_value(),
        "pin": payload.pin.get_secret_value(),
        "plain": payload.plain,
    }


def tell(payload: Login, job: JobContext) -> Told:
    """What ends at once."""
    told = secrets_of(payload)
    job.progress(0.5, f"logging in with {told}")
    log.warning("%s", told["token"])
    log.warning("%r, %s, %s", told["plain"], told["password"], told["pin"])
    match payload.do:
        case "fail":
            raise RuntimeError(f"{'x' * CUT_AT}{told['token']}{'x' * 4_000}{told}")
        case "fail in a chain":
            try:
                TypeAdapter(dict[str, int]).validate_python(told)
            except ValueError as error:
                error.add_note(told["token"])
                raise LookupError(told["password"], told["plain"]) from error
        case "snooze" if job.claim == 1:
            raise Snooze(0)
        case "exit":
            sys.exit(told["token"])
        case "return what is no result":
            return told  # type: ignore[return-value]
    return Told(text=f"it was {told['token']}", by_name={told["password"]: [told["pin"], told["plain"]]})


async def on_loop(payload: Login, job: JobContext) -> Told:
    told = secrets_of(payload)

    async def fail_later() -> None:
        await asyncio.sleep(0.5)
        raise RuntimeError(told["token"])

    match payload.do:
        case "wait":
            tell(payload, job)
            await asyncio.sleep(300)
        case "leave a thread behind":
            threading.Thread(target=asyncio.run, args=[fail_later()]).start()
        case "leave a task behind":
            behind = asyncio.create_task(fail_later())
            del behind
    return tell(payload, job)


def in_thread(payload: Login, job: JobContext) -> Told:
    told = tell(payload, job)
    if payload.do == "wait":
        time.sleep(4)
        log.warning("disowned with %s", secrets_of(payload))
    return told


def in_child(payload: Login, job: JobContext) -> Told:
    told = secrets_of(payload)
    print(told, flush=True)
    for part in told["token"]:
        os.write(2, part.encode())
    match payload.do:
        case "wait":
            time.sleep(300)
        case "crash":
            ctypes.string_at(0)
        case "eat":
            eaten = []
            while True:
                eaten.append(bytearray(10 << 20))
        case "flood":
            os.write(1, f"{'x' * 70_000}{told['token']}{'x' * (64 << 10)}".encode())
            os._exit(3)
    return tell(payload, job)


def app() -> App:
    return App(
        [
            Handler(TASKS[Pool.AGENT], on_loop),
            Handler(TASKS[Pool.SYSTEM], in_thread),
            Handler(TASKS[Pool.INGEST], in_child),
        ]
    )
