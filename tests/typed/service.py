"""What a user writes, with every public name; it must please the strictest checkers as it stands."""

from datetime import timedelta
from pathlib import Path
from typing import assert_type
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import Request
from starlette.types import ASGIApp

from jobs import (
    App,
    ControlError,
    Handler,
    Job,
    JobContext,
    LeaseLost,
    Misfire,
    Overlap,
    Payload,
    PermanentError,
    Pool,
    Priority,
    Retention,
    Schedule,
    Snooze,
    Task,
    Tick,
    cancel,
    enqueue,
    enqueue_many,
    pause,
    resume,
    retry,
    spawn_after_commit,
)
from supervisor.page import Actor, JobsPage, Role, TokenError, Tokens, read_token_file, read_tokens


class Resize(Payload):
    image_id: UUID
    width: int = 800


class Resized(BaseModel):
    size: int


RESIZE = Task(
    kind="resize",
    payload_type=Resize,
    pool=Pool.INGEST,
    max_attempts=3,
    timeout=timedelta(minutes=5),
    priority=Priority.BULK,
    memory_mb=512,
    permanent_errors=(FileNotFoundError,),
    max_per_organization=2,
    retention=Retention(dead=timedelta(days=90)),
)
SWEEP = Task(kind="sweep", payload_type=Tick, pool=Pool.SYSTEM, important=True)
assert_type(RESIZE, Task[Resize])


def resize(payload: Resize, job: JobContext) -> Resized:
    if payload.width < 1:
        raise PermanentError(f"a width of {payload.width}")
    job.progress(0.5, "half way")
    return Resized(size=payload.width * job.attempt)


async def sweep(payload: Tick) -> None:
    if payload.occurrence.minute:
        raise Snooze(timedelta(minutes=1))


def app() -> App:
    return App(
        handlers=[Handler(RESIZE, resize), Handler(SWEEP, sweep)],
        schedules=[
            Schedule("sweep", SWEEP, timedelta(hours=1), Misfire.SKIP, Overlap.QUEUE),
            Schedule("nightly", SWEEP, cron="30 2 * * *", timezone="Europe/Berlin"),
        ],
        preload=["json"],
    )


async def measure(image_id: UUID) -> None:
    print(image_id)


async def upload(db: AsyncSession, image_id: UUID, actor: str) -> int | None:
    job_id: int | None = await enqueue(db, RESIZE, Resize(image_id=image_id), dedupe_key=str(image_id))
    jobs = [Job(payload=Resize(image_id=image_id, width=width)) for width in (100, 200)]
    ids: list[int | None] = await enqueue_many(db, RESIZE, jobs)
    spawn_after_commit(db, measure(image_id))
    try:
        await pause(db, "resize", actor=actor)
        await resume(db, "resize", actor=actor)
        for queued in (job_id, *ids):
            if queued is not None:
                await cancel(db, queued, actor=actor)
                await retry(db, queued, actor=actor)
    except (ControlError, LeaseLost):
        return None
    return job_id


async def who(request: Request) -> Actor | None:
    name = request.headers.get("x-user")
    return Actor(name, Role.OWNER) if name else None


def somebody(request: Request) -> Actor | None:
    found = Actor("ada")
    return found if found.acts or found.role is Role.VIEWER else None


def known(path: Path) -> Tokens:
    try:
        return read_token_file(path)
    except TokenError:
        return read_tokens("viewer ada a-token-of-twenty-or-more", "the app")


async def pages(database_url: str, path: Path) -> list[ASGIApp]:
    made = [JobsPage(database_url, authenticate=each) for each in (who, somebody)]
    made.append(JobsPage(database_url, authenticate=known(path)))
    for page in made[1:]:
        await page.close()
    return [*made]
