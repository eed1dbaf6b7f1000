"""What a page asks of a large database: each question by an index, few pages of it, whatever the statistics say."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from jobs import reports
from jobs.activity import activity
from jobs.bulk import cancel_matching, retry_matching
from jobs.control import run_schedule_now
from jobs.finding import JobFilter, count_matching, find_jobs
from jobs.overview import overview
from jobs.standing import standing
from scripts.seed import seed
from tests.jobs.lab import Connection, add, scalar
from tests.jobs.test_plans import plans_inside, walk

JOBS = 100_000
LARGE = {"background_jobs", "background_attempts"}
MAX_PAGES = 15_000  # of 8 KiB, all in memory: 20 ms
NOW = datetime.now(UTC)


def filters(worker: UUID) -> list[JobFilter]:
    """Each alone, and the pairs that another index could tempt."""
    return [
        JobFilter(),
        JobFilter(status="dead"),
        JobFilter(status="dead", kind="read-scan"),
        JobFilter(status="dead", kind="no such kind"),
        JobFilter(status="dead", organization_id="organization 7"),
        JobFilter(status="queued"),
        JobFilter(status="queued", kind="read-scan"),
        JobFilter(status="running"),
        JobFilter(status="running", worker_id=worker),
        JobFilter(status="succeeded"),
        JobFilter(status="cancelled", kind="read-scan"),
        JobFilter(kind="no such kind"),
        JobFilter(pool="agent", organization_id="organization 7"),
        JobFilter(worker_id=worker),
        JobFilter(schedule="digest 3"),
        JobFilter(schedule="no such schedule"),
        JobFilter(key="no such key"),
        JobFilter(key="customer 10"),
        JobFilter(id=77),
        JobFilter(created_from=NOW - timedelta(days=3), created_until=NOW - timedelta(days=2)),
        JobFilter(status="dead", finished_from=NOW - timedelta(days=3), finished_until=NOW - timedelta(days=2)),
    ]


def questions(db: Connection) -> dict[str, Callable[[], Any]]:
    worker = scalar(db, "SELECT id FROM background_workers LIMIT 1")
    job_id = scalar(db, "SELECT id FROM background_jobs WHERE status = 'queued' AND blocked LIMIT 1")
    dead = JobFilter(status="dead", kind="read-scan")
    return {
        **{
            f"{name} {wanted.given()}": lambda ask=ask, wanted=wanted: ask(db, wanted, milliseconds=0)
            for name, ask in (("find", find_jobs), ("count", count_matching))
            for wanted in filters(worker)
        },
        "overview": lambda: overview(db),
        "activity": lambda: activity(db),
        "activity of a kind": lambda: activity(db, kind="read-scan", span=timedelta(days=7)),
        "job": lambda: reports.show_job(db, job_id),
        "kills": lambda: reports.list_kills(db, "read-scan"),
        "standing": lambda: standing(db, job_id),
        "workers": lambda: reports.list_workers(db),
        "audit": lambda: reports.list_audit(db),
        "notices": lambda: reports.list_notices(db),
        "run a schedule": lambda: run_schedule_now(db, "digest 2", actor="ana"),
        "retry many": lambda: retry_matching(db, dead, actor="ana", limit=50),
        "cancel many": lambda: cancel_matching(db, JobFilter(status="queued"), actor="ana", limit=50),
    }


def check(db: Connection, name: str, ask: Callable[[], Any]) -> None:
    """Ask, and hold what it cost against the bounds."""
    ask()  # what is planned once reads the catalogue
    with plans_inside(db) as plans:
        ask()
    nodes = [node for shown in plans for node in walk(shown["Plan"])]
    ours = [node for node in nodes if node.get("Relation Name") in LARGE]
    ways = {node["Node Type"] for node in ours}
    assert ways <= {"Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Tid Scan", "ModifyTable"}, name
    pages = sum(shown["Plan"]["Shared Hit Blocks"] + shown["Plan"]["Shared Read Blocks"] for shown in plans)
    assert pages < MAX_PAGES, name
    assert [shown for shown in plans if "JIT" in shown] == [], name


@pytest.mark.parametrize("statistics", ["none", "of an empty table", "fresh"])
def test_every_question_of_a_page_is_answered_by_an_index(statistics: str, db: Connection) -> None:
    for table in LARGE:
        db.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    try:
        if statistics == "of an empty table":
            db.execute("ANALYZE")
        seed(db, JOBS, analyze=statistics == "fresh")
        for name, ask in questions(db).items():
            check(db, name, ask)
        for status in ("dead", "queued"):
            add(db, 1_000, kind="no worker's", status=status)
        check(db, "overview with a kind that is not declared", lambda: overview(db))
    finally:
        for table in LARGE:
            db.execute(f"ALTER TABLE {table} RESET (autovacuum_enabled)")
