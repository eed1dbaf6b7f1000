"""Measures what a job costs its database and its worker, on several databases at once, and what a billion a day would.

Each shard is a PostgreSQL of its own with a worker of its own. A service knows only on which one an organisation lives.
Everything is counted in processor time and bytes, which depend little on what else this machine does.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import psutil
import psycopg

from jobs import Job, Retention, enqueue, enqueue_many
from jobs.database import Database
from jobs.migrate import migrate
from jobs.retention import RetentionWalk
from scripts.routing import shard_of
from scripts.shards_app import NUMBER, Number
from supervisor.embedded import EmbeddedServer
from supervisor.embedded.postmaster import Postmaster

ROOT = Path(__file__).parent.parent
SECONDS = 300.0  # for everything
DAY = 86_400
JOBS_A_DAY = 1_000_000_000
PEAK = 3  # times the mean, in the busiest hour
CORES = 8  # of one database, of which a third may be busy at the peak: vacuum, replication and people need the others
SHARD_GB = 100  # of finished jobs, so that indexes and what is read stay in memory
DONE = "SELECT count(*) FROM background_jobs WHERE status = 'succeeded'"
STORED = "SELECT pg_total_relation_size('background_jobs')"


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one job: processor time in microseconds, storage in bytes.

    `database_us` and `worker_us` where each job comes alone and is claimed alone, `batched_us` where many wait.
    """

    database_us: float
    batched_us: float
    removal_us: float
    worker_us: float
    wal_bytes: float
    stored_bytes: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Of a day of `JOBS_A_DAY`, on so many shards."""

    shards: int
    jobs_a_second: float
    busy_cores_at_peak: float
    workers: int
    wal_mb_a_second: float
    kept_days: float
    stored_gb: float


class Shard:
    """One database: its server, and what it has used."""

    def __init__(self, name: str, folder: Path, stack: ExitStack) -> None:
        self.name = name
        server = EmbeddedServer(folder)
        self.url = stack.enter_context(server)
        migrate(self.url)
        postmaster = Postmaster.of(server.data)
        assert postmaster is not None
        self._postmaster = psutil.Process(postmaster.pid)
        self.db = stack.enter_context(psycopg.connect(self.url, autocommit=True))

    def cpu_seconds(self) -> float:
        """Of all processes of the server, also those that have ended."""
        ended = self._postmaster.cpu_times()
        seconds = ended.user + ended.system + ended.children_user + ended.children_system
        for process in self._postmaster.children():
            times = process.cpu_times()
            seconds += times.user + times.system
        return seconds

    def number(self, query: str) -> float:
        row = self.db.execute(query.encode()).fetchone()
        assert row is not None
        return float(row[0])


def main() -> int:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="oomph-shards-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        shards = {
            shard: Shard(shard, folder / shard, stack) for shard in (f"shard-{n}" for n in range(arguments.shards))
        }
        cost = _measure(shards, arguments.jobs, arguments.organizations, folder)
    plan = plan_for(cost)
    if arguments.json:
        sys.stdout.write(json.dumps({"cost": asdict(cost), "plan": asdict(plan)}) + "\n")
    else:
        _tell(cost, plan)
    return 0


def _measure(shards: dict[str, Shard], jobs: int, organizations: int, folder: Path) -> Cost:
    names = list(shards)

    def organization(number: int) -> str:
        return f"organization {number % organizations}"

    def home(number: int) -> Shard:
        return shards[shard_of(organization(number), names)]

    def used() -> float:
        return sum(shard.cpu_seconds() for shard in shards.values())

    def total(query: str) -> float:
        return sum(shard.number(query) for shard in shards.values())

    at_first, wal = used(), total("SELECT pg_current_wal_lsn() - '0/0'")
    for shard in shards.values():  # half of them before any worker comes
        mine = [number for number in range(jobs // 2) if home(number) is shard]
        enqueue_many(
            shard.db,
            NUMBER,
            [Job(payload=Number(number=number), organization_id=organization(number)) for number in mine],
        )
    with ExitStack() as stack:
        workers = [psutil.Process(stack.enter_context(_worker(shard, folder)).pid) for shard in shards.values()]
        _wait(lambda: total(DONE) == jobs // 2)
        batched, began = used(), sum(sum(worker.cpu_times()[:2]) for worker in workers)
        for number in range(jobs // 2, jobs):  # the others one a transaction, as services do
            enqueue(home(number).db, NUMBER, Number(number=number), organization_id=organization(number))
        _wait(lambda: total(DONE) == jobs)
        worker_seconds = sum(sum(worker.cpu_times()[:2]) for worker in workers) - began
    single = used()
    _require_own_organizations(shards, organizations)
    for shard in shards.values():
        shard.db.execute("VACUUM background_jobs")
    wal, stored = total("SELECT pg_current_wal_lsn() - '0/0'") - wal, total(STORED)
    before = used()
    removed = sum(asyncio.run(_remove(shard.url)) for shard in shards.values())
    assert removed == jobs, (removed, jobs)
    half = jobs / 2 / 1e6
    return Cost(
        database_us=(single - batched) / half,
        batched_us=(batched - at_first) / half,
        removal_us=(used() - before) / jobs * 1e6,
        worker_us=worker_seconds / half,
        wal_bytes=wal / jobs,
        stored_bytes=stored / jobs,
    )


def _wait(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < until, "the jobs do not end"
        time.sleep(0.2)


@contextmanager
def _worker(shard: Shard, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "DATABASE_URL": shard.url,
        "WORKER_APP": "scripts.shards_app:app",
        "WORKER_POOLS": "agent",
    }
    with (folder / f"{shard.name}.log").open("wb") as log:
        worker = subprocess.Popen([sys.executable, "-m", "supervisor"], cwd=ROOT, env=environment, stderr=log)
    try:
        yield worker
    finally:
        worker.terminate()
        worker.wait(60)


def _require_own_organizations(shards: dict[str, Shard], organizations: int) -> None:
    """Each organisation has all of its jobs on the one shard that is its own."""
    seen: dict[str, str] = {}
    for name, shard in shards.items():
        for (organization,) in shard.db.execute("SELECT DISTINCT organization_id FROM background_jobs").fetchall():
            assert seen.setdefault(organization, name) == name == shard_of(organization, list(shards))
    assert len(seen) == organizations


async def _remove(url: str) -> int:
    """Everything is old: how many jobs the walk of retention removed."""
    database = Database(url, call_timeout=30, application_name="oomph shards")
    await database.open()
    now = timedelta(microseconds=1)
    walk = RetentionWalk(database, Retention(succeeded=now, dead=now, cancelled=now), records=timedelta(0))
    me, removed = uuid.uuid4(), 0
    await database.fetch("forget_workers")
    while True:
        step = await walk.step(me)
        if step is None:  # a worker of the shard had the walk; it is gone
            with psycopg.connect(url, autocommit=True) as db:
                db.execute("DELETE FROM background_retention")
            continue
        removed += step.removed
        if step.ended:
            break
    await database.close()
    return removed


def plan_for(cost: Cost) -> Plan:
    """The shards that a third of their cores at the peak asks for, and what each keeps of a day's jobs."""
    mean = JOBS_A_DAY / DAY
    cores = mean * PEAK * (cost.database_us + cost.removal_us) / 1e6
    shards = max(4, round(cores / (CORES / 3) + 0.5))
    kept = shards * SHARD_GB * 1e9 / (JOBS_A_DAY * cost.stored_bytes)
    return Plan(
        shards=shards,
        jobs_a_second=mean / shards,
        busy_cores_at_peak=cores / shards,
        workers=round(mean * PEAK * cost.worker_us / 1e6 / 0.5 + 0.5),  # each half busy at the peak
        wal_mb_a_second=mean / shards * PEAK * cost.wal_bytes / 1e6,
        kept_days=kept,
        stored_gb=SHARD_GB,
    )


def _tell(cost: Cost, plan: Plan) -> None:
    print(f"one job: {cost.database_us:.0f} us of its database ({cost.batched_us:.0f} where many wait), of its worker")
    print(
        f"         {cost.worker_us:.0f} us, {cost.removal_us:.0f} us to be removed; {cost.wal_bytes:,.0f} bytes of WAL,"
    )
    print(f"         {cost.stored_bytes:,.0f} kept")
    print(f"{JOBS_A_DAY:,} a day, {PEAK} times the mean at the peak: {plan.shards} shards of {CORES} cores, each with")
    print(f"         {plan.jobs_a_second:,.0f} jobs/s, {plan.jobs_a_second * PEAK:,.0f} at the peak, which keep")
    print(f"         {plan.busy_cores_at_peak:.1f} cores busy and write {plan.wal_mb_a_second:.1f} MB/s of WAL;")
    print(
        f"         {plan.stored_gb} GB hold what succeeded in {plan.kept_days:.2f} days; {plan.workers} workers in all"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=2, help="databases, each with a worker (2)")
    parser.add_argument("--jobs", type=int, default=20_000, help="over all of them (20,000)")
    parser.add_argument("--organizations", type=int, default=200, help="whose jobs they are (200)")
    parser.add_argument("--json", action="store_true", help="print one object instead of sentences")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
