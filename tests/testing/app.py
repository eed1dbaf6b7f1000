"""What a user of the kit might test."""

import asyncio
import os
import subprocess
import time
from pathlib import Path

from pydantic import BaseModel

from jobs import App, Handler, JobContext, Payload, Pool, Task


class Import(Payload):
    ledger_id: int
    seconds: float = 0
    helper: str = ""  # where to write the pid of a helper that is left running


class Imported(BaseModel):
    pid: int


IMPORT = Task(kind="import", payload_type=Import, pool=Pool.INGEST)
NOTE = Task(kind="note", payload_type=Import, pool=Pool.SYSTEM)


def import_ledger(payload: Import, job: JobContext) -> Imported:
    if payload.helper:
        helper = subprocess.Popen(["sleep", "600"], start_new_session=True)
        Path(payload.helper).write_text(str(helper.pid))
    time.sleep(payload.seconds if job.attempt == 1 else 0)
    if payload.ledger_id < 0:
        raise ValueError("no such ledger")
    return Imported(pid=os.getpid())


async def note(payload: Import, job: JobContext) -> None:
    import psycopg

    await asyncio.sleep(payload.seconds)
    async with await psycopg.AsyncConnection.connect(os.environ["LEDGERS"]) as connection:
        await connection.execute("INSERT INTO ledgers VALUES (%s)", [payload.ledger_id])
        await job.complete_in(connection)


def app() -> App:
    return App([Handler(IMPORT, import_ledger), Handler(NOTE, note)])
