"""Organisations take turns: a flood of one does not hold up the others, and a bound of theirs holds."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from jobs import Pool, Priority, Task
from jobs.claim import Claim, ClaimedJob, Mark, Stop, Wanted
from jobs.control import pause, resume
from jobs.database import Database
from jobs.outcome import Verdict
from jobs.store import JobStore
from supervisor.claiming.reach import Reach
from supervisor.claiming.turns import Turns
from tests.jobs.lab import FAILURE, LETTER, NOTE, SUCCESS, Connection, Note, Worker, add, hire, job, returned, scalar

TWO = Task(kind="two", payload_type=Note, pool=Pool.SYSTEM, max_per_organization=2)
FLOOD = 100_000


class Claimer:
    """A worker that hands its turns on from claim to claim, as the supervisor does."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.turns = Turns()

    async def claim(self, slots: int) -> list[ClaimedJob]:
        return (await self.claim_all(slots)).jobs

    async def claim_all(self, slots: int) -> Claim:
        worker, turns = self.worker, self.turns
        wanted = Wanted(worker.id, "system", worker.kinds, slots, stops=turns.stops, served=turns.served)
        claim = await worker.store.claim(wanted)
        turns.taken(claim.jobs, claim.stops)
        return claim


@pytest.fixture
def claimer(worker: Worker) -> Claimer:
    return Claimer(worker)


def flood(db: Connection, count: int = FLOOD, organization: str | None = "a", kind: str = "note") -> None:
    db.execute(
        "INSERT INTO background_jobs (kind, pool, organization_id, run_after)"
        f" SELECT %s, 'system', %s, now() - interval '1 minute' FROM generate_series(1, {count})",
        [kind, organization],
    )


def whose(jobs: Sequence[ClaimedJob]) -> Counter[str | None]:
    return Counter(job.organization_id for job in jobs)


async def done_within(claimer: Claimer, slots: int, organization: str | None, count: int, claims: int) -> int:
    """Claim until `count` jobs of this organisation were taken; after how many claims, `claims` at most."""
    taken = 0
    for n in range(claims):
        taken += whose(await claimer.claim(slots))[organization]
        if taken == count:
            return n + 1
    raise AssertionError(f"only {taken} of {count} jobs of {organization} came in {claims} claims")


async def test_a_flood_of_one_organisation_does_not_hold_up_another(db: Connection, claimer: Claimer) -> None:
    flood(db)
    add(db, 10, organization_id="b")
    jobs = await claimer.claim(20)
    assert whose(jobs) == {"a": 10, "b": 10}
    assert whose(await claimer.claim(20)) == {"a": 20}


@pytest.mark.parametrize("slots", [1, 3])
async def test_one_slot_goes_round(db: Connection, claimer: Claimer, slots: int) -> None:
    flood(db)
    for organization in ("b", "c", None):
        add(db, 10, organization_id=organization)
    order = [job.organization_id for _ in range(40 // slots) for job in await claimer.claim(slots)]
    seen = Counter(order)
    assert all(seen[organization] >= 6 for organization in ("a", "b", "c", None)), seen


async def test_jobs_of_nobody_are_not_held_up_either_and_hold_nobody_up(db: Connection, claimer: Claimer) -> None:
    flood(db)
    add(db, 10)
    assert whose(await claimer.claim(20)) == {"a": 10, None: 10}
    flood(db, 1_000, None)
    add(db, 3, organization_id="b")
    assert await done_within(claimer, 4, "b", 3, claims=4) <= 4


async def test_a_flood_in_one_kind_does_not_hold_up_another_kind(db: Connection, claimer: Claimer) -> None:
    flood(db, 10_000)
    add(db, 5, kind="letter", organization_id="b")
    assert await done_within(claimer, 1, "b", 5, claims=12) <= 12


async def test_each_line_keeps_its_order_and_no_job_comes_twice(db: Connection, claimer: Claimer) -> None:
    wanted: dict[str, list[int]] = {}
    for n in range(300):
        wanted.setdefault(organization := f"org {n * n % 7}", []).extend(add(db, organization_id=organization))
    taken: dict[str | None, list[int]] = {}
    while jobs := await claimer.claim(11):
        for each in sorted(jobs, key=lambda job: job.id):
            taken.setdefault(each.organization_id, []).append(each.id)
    assert taken == wanted


async def test_a_priority_goes_before_every_turn(db: Connection, claimer: Claimer) -> None:
    flood(db, 100)
    add(db, 3, organization_id="b", priority=int(Priority.BULK))
    urgent = add(db, 5, organization_id="a", priority=int(Priority.INTERACTIVE))
    assert [job.id for job in await claimer.claim(5)] == urgent
    assert whose(await claimer.claim(5)) == {"a": 5}


async def test_thousands_of_organisations_all_get_their_turn(db: Connection, claimer: Claimer) -> None:
    flood(db, 2_000)
    db.execute(
        "INSERT INTO background_jobs (kind, pool, organization_id)"
        " SELECT 'note', 'system', 'org ' || n FROM generate_series(1, 3000) AS n"
    )
    seen: Counter[str | None] = Counter()
    for _ in range(30):
        seen += whose(await claimer.claim(100))
    assert set(seen.values()) == {1}
    assert len(seen) == 3_000  # of 3,001


async def test_lines_that_wait_for_tomorrow_hold_up_nobody(db: Connection, claimer: Claimer) -> None:
    flood(db, 2_000)
    db.execute(
        "INSERT INTO background_jobs (kind, pool, organization_id, run_after)"
        " SELECT 'note', 'system', 'b ' || n, now() + interval '1 day' FROM generate_series(1, 5000) AS n"
    )
    add(db, 2, organization_id="c")
    assert await done_within(claimer, 10, "c", 2, claims=8) <= 8


async def test_a_line_that_somebody_holds_is_passed_over(db: Connection, url: str, claimer: Claimer) -> None:
    flood(db, 10)
    (held,) = add(db, organization_id="b")
    (free,) = add(db, organization_id="c")
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM background_jobs WHERE id = %s FOR UPDATE", [held])
        async with asyncio.timeout(2):
            jobs = await claimer.claim(5)
    assert free in [job.id for job in jobs]
    assert held not in [job.id for job in jobs]
    assert len(jobs) == 5


async def test_what_turns_leave_goes_to_the_oldest(db: Connection, claimer: Claimer) -> None:
    """Otherwise each claim of a hundred slots would take as many jobs as there are organisations."""
    flood(db, 200)
    for n in range(30):
        add(db, organization_id=f"b {n}")
    assert whose(await claimer.claim(100))["a"] == 70


async def test_a_claim_that_takes_all_asks_nobody_for_turns(db: Connection, claimer: Claimer) -> None:
    add(db, 3, organization_id="a")
    claim = await claimer.claim_all(10)
    assert len(claim.jobs) == 3
    assert claim.stops == ()


async def test_a_paused_kind_has_no_turn(db: Connection, claimer: Claimer) -> None:
    flood(db, 50)
    add(db, 5, kind="letter", organization_id="b")
    pause(db, "letter", actor="ana")
    assert whose(await claimer.claim(20)) == {"a": 20}


async def test_a_concurrency_key_holds_among_turns(db: Connection, claimer: Claimer) -> None:
    flood(db, 50)
    first, second = add(db, 2, organization_id="b", concurrency_key="k")
    ids = [job.id for job in await claimer.claim(20)]
    assert first in ids
    assert second not in ids
    assert job(db, second, "blocked") is True


# Bounds.


@pytest.fixture
async def bounded(store: JobStore) -> Claimer:
    return Claimer(await hire(store, tasks=[NOTE, LETTER, TWO]))


async def test_no_more_jobs_of_an_organisation_run_than_its_bound(db: Connection, bounded: Claimer) -> None:
    for organization in ("a", "b", None):
        add(db, 5, kind="two", organization_id=organization)
    jobs = await bounded.claim(100)
    assert whose(jobs) == {"a": 2, "b": 2, None: 5}  # who is nobody has no bound
    assert await bounded.claim(100) == []
    (of_a, _) = [job for job in jobs if job.organization_id == "a"]
    await bounded.worker.store.complete({of_a.fence: None})
    assert whose(await bounded.claim(100)) == {"a": 1}


@pytest.mark.parametrize(("kind", "organization"), [("two", "a"), ("note", "a"), ("note", None)])
async def test_a_backlog_of_one_key_does_not_hold_up_what_stands_behind_it(
    db: Connection, bounded: Claimer, kind: str, organization: str | None
) -> None:
    """A bound leaves room for one job beside the one that runs, as a single slot does: once, ten thousand claims."""
    add(db, 10_000, kind=kind, organization_id=organization, concurrency_key="k", run_after="2020-01-01")
    behind = add(db, 3, kind=kind, organization_id=organization)
    first, *_ = await bounded.claim(1)
    assert first.concurrency_key == "k"
    taken: list[ClaimedJob] = []
    for _ in range(15):
        taken += await bounded.claim(1) if not taken else []
    assert [job.id for job in taken] == behind[:1]
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE blocked") == 9_999
    await bounded.worker.store.complete({first.fence: None, taken[0].fence: None})
    keys = {job.concurrency_key for _ in range(2) for job in await bounded.claim(1)}
    assert keys == {"k", None}  # the key's next one was let go


async def test_a_bound_is_one_over_all_priorities(db: Connection, bounded: Claimer) -> None:
    for priority in Priority:
        add(db, 3, kind="two", organization_id="a", priority=int(priority))
    assert [job.priority for job in await bounded.claim(100)] == [0, 0]
    assert await bounded.claim(100) == []


@pytest.mark.parametrize("end", ["success", "failure", "release"])
async def test_the_end_of_a_bounded_job_wakes_whoever_claims_the_next(
    db: Connection, url: str, bounded: Claimer, end: str
) -> None:
    add(db, 3, kind="two", organization_id="a")
    first, _ = await bounded.claim(10)
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN background_jobs")
        store = bounded.worker.store
        if end == "success":
            await store.complete({first.fence: None})
        else:
            await store.finish(first.fence, FAILURE if end == "failure" else returned(Verdict.RELEASED))
        told = [notification.payload for notification in listener.notifies(timeout=5, stop_after=1)]
    assert told == ["earlier two"]
    assert len(await bounded.claim(10)) == 1


async def test_the_end_of_a_job_without_a_bound_wakes_nobody(db: Connection, url: str, bounded: Claimer) -> None:
    add(db, 3, organization_id="a")
    first, second, _ = await bounded.claim(10)
    add(db, organization_id="a")
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN background_jobs")
        await bounded.worker.store.complete({first.fence: None})
        await bounded.worker.store.finish(second.fence, SUCCESS)
        db.execute("NOTIFY background_jobs, 'end'")
        assert [n.payload for n in listener.notifies(timeout=5, stop_after=1)] == ["end"]


async def test_a_line_that_somebody_else_decides_about_is_asked_for_again(
    db: Connection, url: str, bounded: Claimer
) -> None:
    add(db, 5, kind="two", organization_id="a")
    with psycopg.connect(url) as other:
        assert scalar(other, "SELECT background_hold_line('two', 'a', 2)") == 2
        claim = await bounded.claim_all(10)
        assert (claim.jobs, claim.parked) == ([], 1)
    assert len(await bounded.claim(10)) == 2


async def test_eight_workers_at_once_keep_every_bound(db: Connection, url: str) -> None:
    """300 jobs of five organisations, claimed and ended as fast as eight workers can: the bound is never passed."""
    for n in range(5):
        add(db, 60, kind="two", organization_id=f"org {n}")
    db.execute("CREATE TABLE passed (organization_id text, running bigint)")
    # Seen by whoever commits: the claims that run at the same moment hold the line's lock until then.
    db.execute(
        """
        CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO passed SELECT NEW.organization_id, count(*) FROM background_jobs
             WHERE status = 'running' AND organization_id = NEW.organization_id HAVING count(*) > 2;
            RETURN NULL;
        END $$
        """
    )
    db.execute(
        "CREATE CONSTRAINT TRIGGER watch AFTER UPDATE OF status ON background_jobs DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW WHEN (NEW.status = 'running') EXECUTE FUNCTION watch()"
    )
    try:
        done = 0

        async def work(n: int) -> None:
            nonlocal done
            database = Database(url, call_timeout=20, application_name=f"worker {n}")
            await database.open()
            claimer = Claimer(await hire(JobStore(database, retry_delay=0.01, pause_after=5), tasks=[TWO]))
            while done < 300:
                for each in await claimer.claim(n % 4 + 1):
                    await asyncio.sleep(0)
                    assert await claimer.worker.store.complete({each.fence: None}) == set()
                    done += 1
            await database.close()

        async with asyncio.timeout(60):
            await asyncio.gather(*(work(n) for n in range(8)))
        assert scalar(db, "SELECT count(*) FROM passed") == 0
        assert scalar(db, "SELECT count(*) FROM background_jobs WHERE status <> 'succeeded' OR claim <> 1") == 0
    finally:
        db.execute("DROP TRIGGER watch ON background_jobs")
        db.execute("DROP FUNCTION watch")


@pytest.mark.parametrize("most", [0, -1, 10_001])
def test_a_bound_that_cannot_be_meant_is_refused(most: int) -> None:
    with pytest.raises(ValueError, match=r"two: max_per_organization=.* is outside 1 to 10000"):
        Task(kind="two", payload_type=Note, pool=Pool.SYSTEM, max_per_organization=most)


# What a worker hands on.


def claimed(job_id: int, **columns: Any) -> ClaimedJob:
    given = {"id": job_id, "claim": 1, "kind": "note", "pool": "system", "payload": "{}", "attempt": 1}
    return ClaimedJob(**{**given, "max_attempts": 5, "timeout": timedelta(minutes=5), **columns})


def test_who_was_served_last_comes_last() -> None:
    turns = Turns()
    turns.taken([claimed(1, organization_id="a"), claimed(2)], [Stop("note", 1, "a")])
    assert turns.served == ["note", ""]
    turns.taken([claimed(3, organization_id="b")], [Stop("note", 1, "b")])
    assert turns.served == ["", "note"]
    assert list(turns.stops) == [Stop("note", 1, "b")]


def test_a_worker_does_not_pass_over_what_comes_before_a_job_that_had_its_turn() -> None:
    reach = Reach()
    reach.filled([claimed(1, run_after=5.0), claimed(9, run_after=50.0, organization_id="b")], 0.0)
    assert list(reach.marks(0.0)) == [Mark("note", 1, 5.0, 1)]


async def test_the_probe_of_a_paused_kind_keeps_to_the_bound_and_counts_for_it(db: Connection, store: JobStore) -> None:
    worker = await hire(store, tasks=[TWO])
    claimer = Claimer(worker)
    flood(db, 10, "a", "two")
    first, second = await claimer.claim(10)
    pause(db, "two", actor="ana")
    resume(db, "two", actor="ana", probe=True)
    assert await store.claim_probe(worker.id, "system", ["two"]) == []  # two of this organisation run already
    await store.finish(first.fence, SUCCESS)
    assert [probe.organization_id for probe in await store.claim_probe(worker.id, "system", ["two"])] == ["a"]
    resume(db, "two", actor="ana")
    assert await claimer.claim(10) == []
    await store.finish(second.fence, SUCCESS)
    assert len(await claimer.claim(10)) == 1


@pytest.mark.parametrize("flooded", [False, True])
async def test_a_due_job_is_found_at_once_among_many_lines_that_wait_for_tomorrow(
    db: Connection, store: JobStore, flooded: bool
) -> None:
    claimer = Claimer(await hire(store, tasks=[TWO]))
    db.execute(
        "INSERT INTO background_jobs (kind, pool, organization_id, run_after)"
        " SELECT 'two', 'system', 'org ' || n, now() + interval '1 day' FROM generate_series(1, 5000) AS n"
    )
    late = add(db, 2, kind="two", organization_id="z")
    if flooded:  # by somebody who has as many running as may
        add(db, 100, kind="two", organization_id="a")
        assert whose(await claimer.claim(2)) == {"a": 2}
    assert [job.id for job in await claimer.claim(10)] == late
