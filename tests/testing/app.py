"""What a user of the kit might test."""

import os
import time

from pydantic import BaseModel

from jobs import App, Handler, JobContext, Payload, Pool, Task


class Import(Payload):
    ledger_id: int
    seconds: float = 0


class Imported(BaseModel):
    pid: int


IMPORT = Task(kind="import", payload_type=Import, pool=Pool.INGEST)
NOTE = Task(kind="note", payload_type=Import, pool=Pool.SYSTEM)


def import_ledger(payload: Import, job: JobContext) -> Imported:
    time.sleep(payload.seconds if job.attempt == 1 else 0)
    if payload.ledger_id < 0:
        raise ValueError("no such ledger")
    return Imported(pid=os.getpid())


async def note(payload: Import, job: JobContext) -> None:
    import psycopg

    async with await psycopg.AsyncConnection.connect(os.environ["LEDGERS"]) as connection:
        await connection.execute("INSERT INTO ledgers VALUES (%s)", [payload.ledger_id])
        await job.complete_in(connection)


def app() -> App:
    return App([Handler(IMPORT, import_ledger), Handler(NOTE, note)])
