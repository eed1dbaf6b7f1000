"""What the tests of `jobs` share: one declaration, workers with real leases, reports by name, looks at the tables."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg

from jobs import App, Handler, Payload, Pool, Task
from jobs.claim import ClaimedJob, Fence, Waiting, Wanted
from jobs.outcome import AttemptReport, Cancelled, Died, Failed, JobError, Returned, Snoozed, Succeeded, Verdict
from jobs.store import JobStore, Lost

Connection = psycopg.Connection[Any]


class Note(Payload):
    text: str = ""
    number: int = 0


NOTE = Task(kind="note", payload_type=Note, pool=Pool.SYSTEM)
LETTER = Task(kind="letter", payload_type=Note, pool=Pool.SYSTEM)
PARCEL = Task(kind="parcel", payload_type=Note, pool=Pool.INGEST)
TASKS = (NOTE, LETTER, PARCEL)


async def do_nothing(payload: Note) -> None: ...


@dataclass
class Worker:
    """One worker as the database sees it: an id with a lease, and a store to claim with."""

    id: UUID
    store: JobStore
    host: str
    kinds: list[str]

    async def claim(
        self, slots: int = 10, kinds: Iterable[str] | None = None, pool: str = "system"
    ) -> list[ClaimedJob]:
        wanted = self.kinds if kinds is None else list(kinds)
        return (await self.store.claim(Wanted(self.id, pool, wanted, slots))).jobs

    async def claim_one(self) -> ClaimedJob:
        (job,) = await self.claim(slots=1)
        return job

    async def look(self, kinds: list[str]) -> list[Waiting]:
        return (await self.store.look(kinds)).waiting

    async def claim_all(self, slots: int = 10) -> list[ClaimedJob]:
        """Claim until nothing is due and nothing was parked."""
        taken: list[ClaimedJob] = []
        while True:
            claim = await self.store.claim(Wanted(self.id, "system", self.kinds, slots))
            taken += claim.jobs
            if not claim.jobs and not claim.parked:
                return taken


async def hire(
    store: JobStore,
    *,
    tasks: Iterable[Task[Any]] = TASKS,
    host: str = "host-a",
    lease: timedelta = timedelta(minutes=5),
) -> Worker:
    """Register a worker that knows `tasks`."""
    app = App([Handler(task, do_nothing) for task in tasks])
    worker_id = uuid4()
    await store.register(worker_id, host=host, pid=4711, version="1", pools=["system", "ingest"], app=app, lease=lease)
    return Worker(worker_id, store, host, list(app.handlers))


async def succeed(store: JobStore, successes: Mapping[Fence, str | None]) -> set[Fence]:
    """Write successes as a worker does: together, what that refuses one by one. Returns the fences that were lost."""
    refused = await store.complete(successes)
    lost = set()
    for fence in sorted(refused):
        if isinstance(await store.finish(fence, AttemptReport(Succeeded(successes[fence]))), Lost):
            lost.add(fence)
    return lost


def add(db: Connection, count: int = 1, **columns: Any) -> list[int]:
    """Insert jobs by hand, as any SQL client would."""
    given = {"kind": "note", "pool": "system", **columns}
    names = ", ".join(given)
    values = ", ".join(f"%({name})s" for name in given)
    return [
        row[0]
        for row in db.execute(
            f"INSERT INTO background_jobs ({names}) SELECT {values} FROM generate_series(1, {count}) RETURNING id",
            given,
        )
    ]


def expire(db: Connection, worker: Worker) -> None:
    """Let the lease of this worker have run out a second ago."""
    db.execute(
        "UPDATE background_workers SET lease_until = clock_timestamp() - interval '1 second' WHERE id = %s", [worker.id]
    )


def job(db: Connection, job_id: int, columns: str = "status") -> Any:
    """These columns of one job: a single value, or a tuple of several."""
    row = db.execute(f"SELECT {columns} FROM background_jobs WHERE id = %s", [job_id]).fetchone()
    assert row is not None, f"job {job_id} does not exist"
    return row[0] if len(row) == 1 else row


def attempts(db: Connection, job_id: int, columns: str = "verdict") -> list[Any]:
    """These columns of a job's recorded attempts, oldest first."""
    rows = db.execute(
        f"SELECT {columns} FROM background_attempts WHERE job_id = %s ORDER BY claim", [job_id]
    ).fetchall()
    return [row[0] if len(row) == 1 else row for row in rows]


def scalar(db: Connection, query: str, *parameters: Any) -> Any:
    row = db.execute(query, parameters).fetchone()
    assert row is not None
    return row[0]


async def until(holds: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until `holds()`, at most `seconds`."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110  (it happens in another process, which tells nobody here)
            await asyncio.sleep(0.005)


def waiting_for_locks(db: Connection) -> int:
    """How many backends of this database wait for a lock right now."""
    return int(
        scalar(
            db,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
    )


SUCCESS = AttemptReport(Succeeded())
FAILURE = AttemptReport(Failed(JobError("ValueError", "no such file")))
PERMANENT = AttemptReport(Failed(JobError("PermanentError", "gone for good"), permanent=True))
CANCEL = AttemptReport(Cancelled())


def died(verdict: Verdict, why: str = "the limit was 512 MB, the peak 511 MB") -> AttemptReport:
    return AttemptReport(Died(verdict, JobError("Died", why)), {"certainty": "certain", "why": why})


def returned(verdict: Verdict, delay: timedelta = timedelta(0)) -> AttemptReport:
    return AttemptReport(Returned(verdict, "the worker stops", delay))


def snoozed(delay: timedelta) -> AttemptReport:
    return AttemptReport(Snoozed(delay))
