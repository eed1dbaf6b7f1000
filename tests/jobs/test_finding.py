"""Jobs by any filter: the right ones, in pages without gaps, whatever lies between them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from jobs.finding import COUNT_LIMIT, JobCount, JobFilter, JobPage, count_matching, find_jobs
from tests.jobs.callers import CALLERS, settle
from tests.jobs.lab import Connection, add, job
from tests.jobs.test_control import CONNECTIONS

NOON = datetime(2030, 5, 17, 12, tzinfo=UTC)
WORKER = uuid4()
WALK = 5_000  # rows of a window, as background_find_jobs has it


def pages(db: Connection, wanted: JobFilter, *, limit: int = 50, milliseconds: int = 10_000) -> Iterator[JobPage]:
    before = None
    while True:
        page: JobPage = find_jobs(db, wanted, before=before, limit=limit, milliseconds=milliseconds)
        yield page
        before = page.next_before
        if before is None:
            return


def ids(db: Connection, wanted: JobFilter, **options: Any) -> list[int]:
    return [row.id for page in pages(db, wanted, **options) for row in page.jobs]


def fill(db: Connection, count: int = WALK + 1) -> None:
    db.execute("INSERT INTO background_jobs (kind, pool, status) SELECT 'note', 'system', 'succeeded' "
               "FROM generate_series(1, %s)", [count])  # fmt: skip


ONE: dict[str, tuple[dict[str, Any], JobFilter]] = {
    # the columns of the only job that passes, and the filter
    "kind": ({"kind": "letter"}, JobFilter(kind="letter")),
    "pool": ({"pool": "agent"}, JobFilter(pool="agent")),
    "organization": ({"organization_id": "o'1"}, JobFilter(organization_id="o'1")),
    "worker": ({"worker_id": WORKER}, JobFilter(worker_id=WORKER)),
    "running": ({"status": "running", "worker_id": WORKER}, JobFilter(status="running")),
    "running of a worker": (
        {"status": "running", "worker_id": WORKER},
        JobFilter(status="running", worker_id=WORKER, pool="system"),
    ),
    "queued": ({"status": "queued"}, JobFilter(status="queued", kind="note")),
    "blocked": ({"status": "queued", "blocked": True, "concurrency_key": "k"}, JobFilter(status="queued", kind="note")),
    "dead": ({"status": "dead"}, JobFilter(status="dead")),
    "dead of a kind": ({"status": "dead", "kind": "letter"}, JobFilter(status="dead", kind="letter")),
    "cancelled": ({"status": "cancelled"}, JobFilter(status="cancelled")),
    "schedule": ({"schedule": "s", "occurrence": NOON}, JobFilter(schedule="s")),
    "dedupe key": ({"dedupe_key": "a%b\\"}, JobFilter(key="a%b\\")),
    "concurrency key": ({"concurrency_key": "k"}, JobFilter(key="k")),
    "finished": ({"finished_at": NOON}, JobFilter(finished_from=NOON, finished_until=NOON + timedelta(seconds=1))),
}


@pytest.mark.parametrize("name", ONE)
def test_one_among_thousands_is_found_by(name: str, db: Connection) -> None:
    columns, wanted = ONE[name]
    fill(db)
    (found,) = add(db, **{"status": "succeeded", **columns})
    fill(db)
    assert ids(db, wanted) == [found]
    assert count_matching(db, wanted, milliseconds=10_000) == JobCount(1, at_least=False)


@pytest.mark.parametrize("connection", CONNECTIONS)
async def test_every_connection_is_served(
    connection: str, url: str, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    first, last = add(db, 2, status="dead", payload='{"text": "long"}')
    wanted = JobFilter(status="dead", created_from=datetime.now(UTC) - timedelta(hours=1))
    async with CALLERS[connection](url) as held:
        page = await settle(find_jobs(held.db, wanted, limit=1))
        assert [row.id for row in page.jobs] == [last]
        assert page.looked_back_to == page.jobs[0].created_at
        page = await settle(find_jobs(held.db, wanted, before=page.next_before))
        assert [(row.id, row.payload) for row in page.jobs] == [(first, None)]
        assert (page.next_before, page.looked_back_to) == (None, None)
        assert await settle(count_matching(held.db, wanted)) == JobCount(2, at_least=False)


@pytest.mark.parametrize("status", ["succeeded", "dead", "queued"])
def test_pages_have_every_job_once_newest_first(status: str, db: Connection) -> None:
    db.execute(
        "INSERT INTO background_jobs (kind, pool, status) SELECT CASE WHEN n %% 40 = 0 THEN 'letter' ELSE 'note' END, "
        "'system', %s FROM generate_series(1, 6000) AS n",
        [status],
    )
    wanted = JobFilter(status=status, kind="letter")
    found = ids(db, wanted, limit=7)
    assert found == sorted(found, reverse=True)
    assert len(found) == len(set(found)) == 150


def test_a_page_whose_time_is_over_says_how_far_it_came(db: Connection) -> None:
    (found,) = add(db, status="succeeded", kind="letter")
    fill(db, 3 * WALK)
    shown = list(pages(db, JobFilter(kind="letter"), milliseconds=0))
    assert [len(page.jobs) for page in shown] == [0, 0, 1, 0]  # a window each
    assert all(page.looked_back_to for page in shown[:2])
    assert shown[2].jobs[0].id == found
    assert count_matching(db, JobFilter(kind="letter"), milliseconds=0) == JobCount(0, at_least=True)


def test_what_was_deleted_takes_no_time(db: Connection) -> None:
    (found,) = add(db, status="succeeded", kind="letter")
    db.execute("SELECT setval('background_jobs_id_seq', 1000000000000)")
    fill(db, 10)
    assert ids(db, JobFilter(kind="letter"), milliseconds=0) == [found]


def test_a_count_ends_at_its_limit(db: Connection) -> None:
    fill(db, COUNT_LIMIT + 5)
    assert count_matching(db, JobFilter(kind="note"), milliseconds=10_000) == JobCount(COUNT_LIMIT, at_least=True)


def test_a_time_of_creation_is_found_without_looking_at_others(db: Connection) -> None:
    db.execute(
        "INSERT INTO background_jobs (kind, pool, status, created_at) "
        "SELECT 'note', 'system', 'succeeded', %s::timestamptz + n * interval '1 second' "
        "FROM generate_series(1, 30000) AS n",
        [NOON],
    )
    start, end = NOON + timedelta(hours=3), NOON + timedelta(hours=3, seconds=100)
    wanted = JobFilter(created_from=start, created_until=end)
    page: JobPage = find_jobs(db, wanted, limit=1000, milliseconds=0)
    assert [row.created_at for row in page.jobs] == [end - timedelta(seconds=n) for n in range(1, 101)]
    assert page.next_before is None
    assert ids(db, JobFilter(created_from=NOON + timedelta(days=9))) == []
    assert ids(db, JobFilter(created_until=NOON - timedelta(days=9))) == []


def test_an_endless_moment_does_no_harm(db: Connection) -> None:
    created = add(db, 1, created_at="infinity") + add(db, 3) + add(db, 1, created_at="-infinity")
    assert set(ids(db, JobFilter(created_until=datetime.now(UTC) + timedelta(hours=1)))) <= set(created)
    assert find_jobs(db, JobFilter(), limit=2).looked_back_to is not None


def test_an_id_is_found_with_what_else_is_asked_for(db: Connection) -> None:
    first, second, _ = add(db, 3, status="dead")
    assert ids(db, JobFilter(id=second)) == [second]
    assert ids(db, JobFilter(id=first, status="queued")) == []
    assert ids(db, JobFilter(id=10**18)) == []


def test_active_jobs_of_a_key_are_found_at_once_however_old_they_are(db: Connection) -> None:
    db.execute("INSERT INTO background_kinds (kind) VALUES ('note')")
    old = [
        *add(db, dedupe_key="k"),
        *add(db, blocked=True, concurrency_key="k"),
        *add(db, status="running", concurrency_key="k", worker_id=WORKER),
    ]
    (dead,) = add(db, dedupe_key="k", status="dead")
    fill(db)
    first = find_jobs(db, JobFilter(key="k"), milliseconds=0)
    assert [row.id for row in first.jobs] == sorted(old, reverse=True)
    assert ids(db, JobFilter(key="k", status="running")) == [old[2]]
    assert set(ids(db, JobFilter(key="k"))) == {*old, dead}


def test_more_queued_jobs_than_are_sorted_are_found_by_walking_back(db: Connection) -> None:
    queued = add(db, 4_500)
    fill(db, WALK)
    assert ids(db, JobFilter(status="queued"), limit=1_000) == sorted(queued, reverse=True)
    assert job(db, queued[0]) == "queued"


def test_a_limit_beyond_a_page_is_refused(db: Connection) -> None:
    with pytest.raises(ValueError, match="1 to 1,000 are allowed"):
        find_jobs(db, JobFilter(), limit=1_001)
