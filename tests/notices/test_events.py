"""What becomes a notice: once for each event, in the transaction of the event itself."""

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobs.control import retry
from jobs.database import Database
from jobs.outcome import Verdict
from jobs.recovery import Recovery
from jobs.store import JobStore
from jobs.task import Pool, Task
from supervisor.testing import Kit, wait_for
from tests.jobs.lab import PERMANENT, SUCCESS, Note, add, died, expire, hire, scalar
from tests.notices.app import HARMLESS, IMPORTANT, SYSTEM, Work
from tests.notices.conftest import APP

GRAVE = Task(kind="grave", payload_type=Note, pool=Pool.SYSTEM, important=True)
LIGHT = Task(kind="light", payload_type=Note, pool=Pool.SYSTEM)

Connection = psycopg.Connection[Any]


def told(db: Connection) -> list[tuple[str, str]]:
    return db.execute("SELECT severity, subject FROM background_notices ORDER BY id").fetchall()


async def test_a_dead_job_of_an_important_kind_is_told_once_and_of_another_not(db: Connection, store: JobStore) -> None:
    worker = await hire(store, tasks=[GRAVE, LIGHT])
    for kind in ("grave", "light"):
        add(db, kind=kind)
    grave, light = sorted(await worker.claim(), key=lambda job: job.kind)
    for job in (grave, light, grave):
        await store.finish(job.fence, PERMANENT)
    assert told(db) == [("critical", f"job {grave.id} of the important kind grave is dead")]
    body = scalar(db, "SELECT body FROM background_notices")
    assert "PermanentError: gone for good" in body
    assert f"`oomph jobs retry {grave.id} --actor NAME`" in body


async def test_a_job_that_lives_is_no_notice_and_each_death_is_one(db: Connection, store: JobStore) -> None:
    worker = await hire(store, tasks=[GRAVE])
    add(db, 2, kind="grave", max_attempts=2)
    first, second = await worker.claim()
    await store.finish(first.fence, SUCCESS)
    await store.finish(second.fence, died(Verdict.KILLED))
    assert told(db) == []
    db.execute("UPDATE background_jobs SET run_after = now() WHERE status = 'queued'")
    for _ in range(2):
        (again,) = await worker.claim()
        await store.finish(again.fence, PERMANENT)
        retry(db, again.id, actor="ana")
    assert len(told(db)) == 2


async def test_an_important_job_that_dies_with_its_worker_is_told_as_the_worker_is(
    db: Connection, database: Database, store: JobStore
) -> None:
    """However many look at the same moment."""
    worker = await hire(store, tasks=[GRAVE], host="host-x")
    await hire(store, tasks=[GRAVE])
    add(db, kind="grave", max_attempts=1)
    (job,) = await worker.claim()
    expire(db, worker)
    rescuers = [Recovery(database, store, unknown_kind_grace=timedelta(0)) for _ in range(3)]
    await asyncio.gather(*(rescuer.rescue() for rescuer in rescuers))
    assert told(db) == [
        ("warning", "a worker on host-x is lost with 1 running jobs"),
        ("critical", f"job {job.id} of the important kind grave is dead"),
    ]
    assert "the lease of worker" in scalar(db, "SELECT body FROM background_notices WHERE severity = 'critical'")


async def test_an_important_job_that_no_worker_knows_is_told(
    db: Connection, database: Database, store: JobStore
) -> None:
    gone = await hire(store, tasks=[GRAVE])
    await store.deregister(gone.id)
    await hire(store, tasks=[LIGHT])
    db.execute("UPDATE background_departures SET at = at - interval '1 hour'")
    db.execute("UPDATE background_workers SET started_at = started_at - interval '1 hour'")
    (job_id,) = add(db, kind="grave")
    await Recovery(database, store, unknown_kind_grace=timedelta(0)).bury_unknown()
    assert told(db) == [("critical", f"job {job_id} of the important kind grave is dead")]


async def test_jobs_of_a_kind_that_no_worker_declared_are_told_once_a_day(
    db: Connection, database: Database, store: JobStore
) -> None:
    """However many workers bury them."""
    await hire(store, tasks=[LIGHT])
    buriers = [Recovery(database, store, unknown_kind_grace=timedelta(0)) for _ in range(3)]
    first, *_ = add(db, 3, kind="misspelt")
    add(db, kind="another")
    assert sum(await asyncio.gather(*(burier.bury_unknown() for burier in buriers))) == 4
    another, misspelt = (
        ("warning", f"jobs of the kind {kind} are dead: no worker ever declared it") for kind in ("another", "misspelt")
    )
    assert sorted(told(db)) == [another, misspelt]
    body = scalar(db, "SELECT body FROM background_notices WHERE event LIKE 'undeclared-kind:misspelt:%%'")
    for part in (
        f"At least 3, the first of them job {first}.",
        "Start a worker whose app has a handler for it",
        "`oomph jobs list --status dead --kind misspelt`",
        f"`oomph jobs retry {first} --actor NAME`",
    ):
        assert part in body
    add(db, kind="misspelt")
    assert await buriers[0].bury_unknown() == 1
    assert sorted(told(db)) == [another, misspelt]
    db.execute("UPDATE background_notices SET event = regexp_replace(event, '....-..-..$', '2020-01-01')")
    add(db, kind="misspelt")
    assert await buriers[0].bury_unknown() == 1
    assert sorted(told(db)) == [another, misspelt, misspelt]


async def test_jobs_of_a_kind_that_a_worker_declared_once_are_no_news_when_they_are_buried(
    db: Connection, database: Database, store: JobStore
) -> None:
    gone = await hire(store, tasks=[Task(kind="plain", payload_type=Note, pool=Pool.SYSTEM)])
    await store.deregister(gone.id)
    await hire(store, tasks=[LIGHT])
    db.execute("UPDATE background_departures SET at = at - interval '1 hour'")
    db.execute("UPDATE background_workers SET started_at = started_at - interval '1 hour'")
    add(db, kind="plain")
    assert await Recovery(database, store, unknown_kind_grace=timedelta(0)).bury_unknown() == 1
    assert told(db) == []


async def test_a_kind_that_is_not_important_any_more_is_so_with_the_next_worker(
    db: Connection, store: JobStore
) -> None:
    await hire(store, tasks=[GRAVE])
    assert scalar(db, "SELECT important FROM background_kinds WHERE kind = 'grave'") is True
    await hire(store, tasks=[Task(kind="grave", payload_type=Note, pool=Pool.SYSTEM)])
    assert scalar(db, "SELECT important FROM background_kinds WHERE kind = 'grave'") is False


def test_important_is_a_word_of_the_declaration() -> None:
    with pytest.raises(TypeError, match="important must be True or False"):
        Task(kind="grave", payload_type=Note, pool=Pool.SYSTEM, important="very")  # type: ignore[arg-type]


async def test_an_error_of_any_size_and_a_kind_of_any_letters_keep_no_job_from_its_end(
    db: Connection, store: JobStore
) -> None:
    hostile = "new\nline %s 'quote' \u202e" + "k" * 70
    db.execute("INSERT INTO background_kinds (kind, important) VALUES (%s, true)", [hostile])
    (job_id,) = add(db, kind=hostile)
    db.execute(
        "UPDATE background_jobs SET status = 'dead', error = jsonb_build_object('message', repeat('%%s ', 1000000))"
    )
    assert told(db) == [("critical", f"job {job_id} of the important kind {hostile} is dead")]
    assert scalar(db, "SELECT length(body) FROM background_notices") < 6_000


def test_a_worker_that_is_killed_is_a_notice_of_those_that_live(oomph_kit: Kit) -> None:
    for _ in range(2):
        oomph_kit.start(APP, WORKER_POOLS="system")
    victim = oomph_kit.start(APP, WORKER_POOLS="system")
    os.kill(victim.pid, signal.SIGKILL)
    wait_for(lambda: told(oomph_kit.db), "the notice")
    job_id = oomph_kit.enqueue(SYSTEM, Work())
    oomph_kit.wait_for(job_id, "succeeded")
    for worker in oomph_kit.workers[:2]:
        assert worker.stop() == 0
    assert [severity for severity, _ in told(oomph_kit.db)] == ["warning"]
    assert f"pid {victim.pid} on " in scalar(oomph_kit.db, "SELECT body FROM background_notices")


def test_an_important_job_that_kills_its_worker_is_told_by_another(oomph_kit: Kit) -> None:
    first = oomph_kit.start(APP, WORKER_POOLS="system")
    job_id = oomph_kit.enqueue(IMPORTANT, Work(do="kill the worker"))
    first.wait()
    oomph_kit.start(APP, WORKER_POOLS="system")
    wait_for(lambda: len(told(oomph_kit.db)) == 2, "both notices")
    assert ("critical", f"job {job_id} of the important kind important-work is dead") in told(oomph_kit.db)


def test_a_template_that_does_not_come_up_is_told_once_and_so_is_its_return(oomph_kit: Kit, tmp_path: Path) -> None:
    worker = oomph_kit.start(APP, WORKER_POOLS="ingest", APP_IS_BROKEN_BY=str(tmp_path / "no"))
    (tmp_path / "no").touch()
    template = next(process for process in worker.descendants() if "template" in " ".join(process.cmdline()))
    template.kill()
    wait_for(lambda: told(oomph_kit.db), "the notice")
    worker.wait_log("(?s)(no template, so.*){4}")  # it goes on failing, and says no more
    (tmp_path / "no").unlink()
    for _ in range(10):
        oomph_kit.wait_for(oomph_kit.enqueue(HARMLESS, Work()), "succeeded", seconds=60)
    wait_for(lambda: len(told(oomph_kit.db)) > 1, "its return")
    assert worker.stop() == 0
    down, up = told(oomph_kit.db)
    assert down[0] == "critical"
    assert down[1].endswith("its template does not come up")
    assert up[0] == "info"
    assert "ImportError" in scalar(oomph_kit.db, "SELECT body FROM background_notices ORDER BY id LIMIT 1")
