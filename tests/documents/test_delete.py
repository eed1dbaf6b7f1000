"""Deleting, and what cleans up: the store holds what the rows say, and never less."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from jobs import cancel
from jobs.app import Tick
from jobs.documents.cleanup import cleanup_partial_index, sweep
from jobs.documents.delete import delete
from jobs.documents.errors import DocumentError
from jobs.documents.keys import asset_key, original_key, snapshot_key
from jobs.documents.reindex import reindex
from jobs.documents.reports import document_assets, list_documents, show_documents
from jobs.documents.search import search
from jobs.documents.task import Source
from jobs.failpoints import Failpoint
from scripts import samples
from supervisor.testing.waiting import wait_for
from tests.documents.conftest import Library

PAGES = [["Looms", "The Jacquard loom weaves flowers."]]


def rows(library: Library, document_id: UUID) -> int:
    found = library.db.execute("SELECT count(*) FROM background_documents WHERE id = %s", [document_id]).fetchone()
    assert found is not None
    return int(found[0])


def test_index_assets_original_and_row_go(library: Library) -> None:
    library.start()
    given, other = library.submit("a.pdf", samples.pdf(PAGES)), library.submit("b.txt", b"other words")
    library.settled(given, other)
    assert library.found("flowers") == {given.document_id}
    library.delete(given.document_id)
    assert library.found("flowers") == set()
    assert library.documents(given.document_id) == []
    wait_for(lambda: rows(library, given.document_id) == 0, "the row gone")
    assert library.stored() == library.own_objects(other.document_id)
    with pytest.raises(DocumentError, match="does not exist"):
        library.delete(given.document_id)


def test_what_was_deleted_can_be_submitted_again_at_once(library: Library) -> None:
    library.start()
    first = library.submit("a.pdf", samples.pdf(PAGES))
    library.settled(first)
    library.delete(first.document_id)
    again = library.submit("a.pdf", samples.pdf(PAGES))
    assert again.is_new
    assert again.document_id != first.document_id
    library.settled(again)
    wait_for(lambda: rows(library, first.document_id) == 0, "the first one's row gone")
    assert library.found("flowers") == {again.document_id}
    assert library.stored() == library.own_objects(again.document_id)


def test_nothing_is_deleted_while_a_job_runs(library: Library) -> None:
    given = library.submit("a.pdf", samples.pdf(PAGES))
    library.start(WORKER_FAILPOINTS=f"{Failpoint.DOCUMENT_CHUNKING}:stop")
    wait_for(lambda: library.document(given.document_id).status == "CHUNKING", "a job that runs")
    with pytest.raises(DocumentError, match=f"worked on by job {given.job_id}"):
        library.delete(given.document_id)
    cancel(library.db, given.job_id, actor="ada")  # type: ignore[arg-type]
    library.settled(given)
    library.delete(given.document_id)
    wait_for(lambda: rows(library, given.document_id) == 0, "the row gone")
    assert library.stored() == []


def test_a_deletion_that_meets_a_claim_gives_way_to_what_writes_the_index(library: Library) -> None:
    given = library.submit("a.txt", b"words")
    refused: list[DocumentError] = []

    def deleting() -> None:
        with psycopg.connect(library.url) as other, pytest.raises(DocumentError, match="is being worked on") as raised:
            delete(other, given.document_id)
        refused.append(raised.value)

    with psycopg.connect(library.url) as indexing, psycopg.connect(library.url) as claiming:
        claiming.execute("UPDATE background_jobs SET status = 'running' WHERE id = %s", [given.job_id])
        thread = threading.Thread(target=deleting)
        thread.start()
        while not library.db.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall():
            assert thread.is_alive()
        indexing.execute(
            "INSERT INTO background_document_chunks (document_id, position, text) VALUES (%s, 0, 'words')",
            [given.document_id],
        )
        claiming.commit()
        thread.join(5)
        assert refused
    library.db.execute("UPDATE background_jobs SET status = 'queued' WHERE id = %s", [given.job_id])


def test_a_job_that_waits_is_cancelled_with_its_document(library: Library) -> None:
    given = library.submit("a.pdf", samples.pdf(PAGES))
    library.delete(given.document_id)
    assert library.job(given.job_id)[0] == "cancelled"
    library.start()
    wait_for(lambda: rows(library, given.document_id) == 0, "the row gone")
    assert library.stored() == []


def test_a_deletion_that_is_rolled_back_leaves_everything(library: Library) -> None:
    library.start()
    given = library.submit("a.pdf", samples.pdf(PAGES))
    library.settled(given)
    with library.db.transaction(force_rollback=True):
        delete(library.db, given.document_id)
    assert library.found("flowers") == {given.document_id}
    assert library.stored() == library.own_objects(given.document_id)


def test_a_store_that_does_not_answer_delays_a_deletion_and_nothing_is_forgotten(library: Library) -> None:
    """The row goes last, since it names what is still there."""
    given = library.submit("a.txt", b"words")
    broken = library.folder / "elsewhere"
    broken.write_bytes(b"in the way")
    with library.worker(OBJECT_STORE_URL=broken.as_uri()):
        library.delete(given.document_id)
        wait_for(
            lambda: library.db.execute(
                "SELECT 1 FROM background_attempts WHERE kind = 'clean-up-document' AND verdict = 'failed'"
            ).fetchall(),
            "a clean-up that failed",
        )
        assert rows(library, given.document_id) == 1
    library.start()
    wait_for(lambda: rows(library, given.document_id) == 0, "the row gone", 40)
    assert library.stored() == []


def test_a_clean_up_spares_what_the_document_and_a_running_attempt_call_their_own(library: Library) -> None:
    given = library.submit("a.txt", b"words")
    document_id, job_id = given.document_id, given.job_id
    library.db.execute(
        "UPDATE background_jobs SET status = 'running', claim = 3, worker_id = gen_random_uuid() WHERE id = %s",
        [job_id],
    )
    library.db.execute("UPDATE background_documents SET edition = '7-1' WHERE id = %s", [document_id])
    kept = [
        original_key(document_id),
        snapshot_key(document_id, "7-1"),
        asset_key(document_id, "7-1", "image.png"),
        snapshot_key(document_id, f"{job_id}-3"),
    ]
    stale = [snapshot_key(document_id, f"{job_id}-2"), asset_key(document_id, "7-11", "image.png")]
    for key in (*kept, *stale):
        library.objects.put(key, b"x")
    assert cleanup_partial_index(library.db, library.objects, document_id) == len(stale)
    assert library.stored() == sorted(kept)


def test_the_sweep_removes_what_no_document_knows_once_it_is_a_day_old(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", library.url)
    monkeypatch.setenv("OBJECT_STORE_URL", library.store_url)
    library.start()
    given = library.submit("a.txt", b"words")
    library.settled(given)
    known = library.own_objects(given.document_id)
    old, young = original_key(uuid4()), original_key(uuid4())
    stale = snapshot_key(given.document_id, "1-99")
    for key in (old, young, stale):
        library.objects.put(key, b"x")
    library.objects.put("documents/notes/of-others", b"x")
    before = time.time() - 2 * 86_400
    for path in Path(library.folder / "objects").rglob("*"):
        if path.is_file() and young not in str(path):
            os.utime(path, (before, before))
    sweep(Tick.model_validate({"schedule": "sweep", "occurrence": "2020-01-01T00:00:00Z"}))
    assert library.stored() == sorted([*known, young, "documents/notes/of-others"])


def test_the_sweep_of_an_empty_database_removes_nothing(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", library.url)
    monkeypatch.setenv("OBJECT_STORE_URL", library.store_url)
    of_another = original_key(uuid4())
    library.objects.put(of_another, b"x")
    before = time.time() - 2 * 86_400
    os.utime(library.folder / "objects" / of_another, (before, before))
    sweep(Tick.model_validate({"schedule": "sweep", "occurrence": "2020-01-01T00:00:00Z"}))
    assert library.stored() == [of_another]


def test_the_sweep_removes_what_was_killed_while_it_was_stored(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", library.url)
    monkeypatch.setenv("OBJECT_STORE_URL", library.store_url)
    library.submit("a.txt", b"words")
    large = library.folder / "large.txt"
    with large.open("wb") as file:
        file.truncate(200 << 20)
    code = (
        "import sys; from pathlib import Path; from jobs.documents.objects import Objects; "
        "Objects().put(sys.argv[1], Path(sys.argv[2]))"
    )

    def killed(key: str) -> Path:
        with subprocess.Popen([sys.executable, "-c", code, key, large]) as storing:
            begun = library.folder / "objects" / f"{key}#1"
            wait_for(lambda: begun.exists() or storing.poll() is not None, "a file that is being stored")
            storing.kill()
        assert begun.exists(), "it was killed too late"
        return begun

    old, young = killed(original_key(uuid4())), killed(original_key(uuid4()))
    of_others = library.folder / "objects" / "documents" / "notes" / "a#1"
    of_others.parent.mkdir()
    of_others.write_bytes(b"x")
    before = time.time() - 2 * 86_400
    for path in (old, of_others):
        os.utime(path, (before, before))
    sweep(Tick.model_validate({"schedule": "sweep", "occurrence": "2020-01-01T00:00:00Z"}))
    assert (old.exists(), old.parent.exists()) == (False, False)
    assert young.exists()
    assert of_others.exists()


def test_a_search_does_not_see_a_document_that_is_being_deleted(library: Library) -> None:
    library.start()
    given = library.submit("a.txt", b"words of looms")
    library.settled(given)
    with library.db.transaction():
        delete(library.db, given.document_id)
        assert search(library.db, "looms") == []


async def test_a_service_lists_reindexes_and_deletes_on_an_asynchronous_connection(library: Library) -> None:
    given = library.submit("a.txt", b"words")
    library.db.execute("UPDATE background_jobs SET status = 'succeeded' WHERE id = %s", [given.job_id])
    parts = conninfo_to_dict(library.url)
    db = await asyncpg.connect(host=parts["host"], port=parts.get("port"), user=parts["user"], database=parts["dbname"])
    async with db.transaction():
        assert [row.id for row in await list_documents(db)] == [given.document_id]
        assert [row.id for row in await show_documents(db, [given.document_id])] == [given.document_id]
        assert await document_assets(db, given.document_id) == []
        job_id = await reindex(db, given.document_id)
        assert job_id != given.job_id
        other = library.submit("b.txt", b"other")
        library.db.execute("UPDATE background_jobs SET status = 'dead' WHERE id = %s", [other.job_id])
        with pytest.raises(DocumentError, match="has no snapshot yet"):
            await reindex(db, other.document_id, Source.SNAPSHOT)
        await delete(db, given.document_id)
        assert [row.filename for row in await list_documents(db)] == ["b.txt"]
    await db.close()
    assert library.job(job_id)[0] == "cancelled"
