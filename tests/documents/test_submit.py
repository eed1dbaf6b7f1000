"""Submitting: one document for the same content, one job that works on it, all in the caller's transaction."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import create_async_engine

from jobs.documents.errors import UnreadableDocument
from jobs.documents.ingest import Submission, base_name, submit
from jobs.documents.originals import Original, Originals, StoreError
from tests.documents.conftest import Connection, Library

ROOT = Path(__file__).parent.parent.parent


def counts(db: Connection) -> tuple[int, int]:
    row = db.execute(
        "SELECT (SELECT count(*) FROM background_documents), (SELECT count(*) FROM background_jobs)"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def end_job(db: Connection, job_id: int | None, status: str) -> None:
    db.execute("UPDATE background_jobs SET status = %s WHERE id = %s", [status, job_id])


def test_a_document_and_its_job_are_written_together(library: Library) -> None:
    given = library.submit("notes/a.txt", b"words")
    document = library.document(given.document_id)
    assert (document.filename, document.status, document.size, document.job_id) == ("a.txt", "PENDING", 5, given.job_id)
    assert given.is_new
    assert given.is_queued
    assert library.job(given.job_id, "kind, pool, payload, max_attempts, timeout::text") == (
        "ingest-document",
        "ingest",
        {"document_id": str(given.document_id)},
        3,
        "00:10:00",
    )


def test_a_transaction_that_is_rolled_back_leaves_neither(library: Library) -> None:
    original = library.originals.save(b"words")
    with library.db.transaction(force_rollback=True):
        submit(library.db, original, "a.txt")
    assert counts(library.db) == (0, 0)


def test_the_same_content_under_another_name_is_the_same_document(library: Library) -> None:
    first = library.submit("a.txt", b"words")
    second = library.submit("b.txt", b"words")
    assert second == Submission(first.document_id, first.job_id, "PENDING", is_new=False, is_queued=False)
    assert library.document(first.document_id).filename == "a.txt"
    assert counts(library.db) == (1, 1)


@pytest.mark.parametrize("ending", ["dead", "cancelled"])
def test_a_document_that_failed_is_given_a_new_job(library: Library, ending: str) -> None:
    first = library.submit("a.txt", b"words")
    end_job(library.db, first.job_id, ending)
    assert library.document(first.document_id).status == "FAILED"
    again = library.submit("b.txt", b"words")
    assert (again.document_id, again.is_new, again.is_queued) == (first.document_id, False, True)
    assert again.job_id != first.job_id
    document = library.document(first.document_id)
    assert (document.status, document.message, document.job_id) == ("PENDING", None, again.job_id)
    assert document.filename == "b.txt"  # perhaps the old name was what was wrong


def test_a_document_that_is_ready_is_left_alone(library: Library) -> None:
    first = library.submit("a.txt", b"words")
    end_job(library.db, first.job_id, "succeeded")
    again = library.submit("a.txt", b"words")
    assert (again.status, again.is_queued, again.job_id) == ("READY", False, first.job_id)
    assert counts(library.db) == (1, 1)


@pytest.mark.parametrize("state", ["new", "failed"])
def test_of_two_that_submit_the_same_at_once_one_makes_the_job(library: Library, state: str) -> None:
    original = library.originals.save(b"words")
    expected_jobs = 1
    if state == "failed":
        end_job(library.db, library.submit("a.txt", b"words").job_id, "dead")
        expected_jobs = 2
    given: list[Submission] = []

    def second() -> None:
        with psycopg.connect(library.url) as other:
            given.append(submit(other, original, "b.txt"))

    with psycopg.connect(library.url) as first:
        given.append(submit(first, original, "a.txt"))
        thread = threading.Thread(target=second)
        thread.start()
        while not library.db.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall():
            assert thread.is_alive()
    thread.join()
    assert [each.is_queued for each in given] == [True, False]
    assert given[0].job_id == given[1].job_id
    assert counts(library.db) == (1, expected_jobs)


def test_many_submitters_of_the_same_files_make_one_document_and_one_job_of_each(library: Library) -> None:
    originals = [library.originals.save(b"words %d" % number) for number in range(10)]

    def submit_all() -> None:
        with psycopg.connect(library.url, autocommit=True) as db:
            for original in originals:
                submit(db, original, "a.txt")

    with ThreadPoolExecutor(8) as threads:
        for submitting in [threads.submit(submit_all) for _ in range(8)]:
            submitting.result()
    assert counts(library.db) == (10, 10)


async def with_psycopg(url: str, original: Original) -> Submission:
    async with await psycopg.AsyncConnection.connect(url) as db:
        return await submit(db, original, "a.txt")  # type: ignore[no-any-return]


async def with_sqlalchemy(url: str, original: Original) -> Submission:
    engine = create_async_engine("postgresql+psycopg://", connect_args=conninfo_to_dict(url))
    async with engine.begin() as db:
        given: Submission = await submit(db, original, "a.txt")
    await engine.dispose()
    return given


async def with_asyncpg(url: str, original: Original) -> Submission:
    parts = conninfo_to_dict(url)
    db = await asyncpg.connect(host=parts["host"], port=parts.get("port"), user=parts["user"], database=parts["dbname"])
    async with db.transaction():
        given: Submission = await submit(db, original, "a.txt")
    await db.close()
    return given


@pytest.mark.parametrize("way", [with_psycopg, with_sqlalchemy, with_asyncpg])
async def test_a_service_submits_on_the_connection_it_has(library: Library, way: Callable[..., object]) -> None:
    original = await asyncio.to_thread(library.originals.save, b"words")
    made = await way(library.url, original)  # type: ignore[misc]
    again = await way(library.url, original)  # type: ignore[misc]
    assert type(made.document_id) is UUID
    assert (made.is_new, again.is_new, again.document_id) == (True, False, made.document_id)
    end_job(library.db, made.job_id, "dead")
    assert (await way(library.url, original)).is_queued  # type: ignore[misc]
    assert counts(library.db) == (1, 2)


def test_a_service_submits_on_a_synchronous_sqlalchemy_connection(library: Library) -> None:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", connect_args=conninfo_to_dict(library.url))
    with engine.begin() as db:
        assert submit(db, library.originals.save(b"words"), "a.txt").is_new
    engine.dispose()
    assert counts(library.db) == (1, 1)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ada\\notes.txt", "notes.txt"),
        ("folder/", "folder"),
        ("a\nb\0c.txt", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c.txt"),
        ("bad\udcff.txt", "bad?.txt"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("x" * 300 + ".docx", "x" * 250 + ".docx"),
        ("x" * 300, "x" * 255),
        ("مستند.pdf", "مستند.pdf"),
    ],
)
def test_only_the_base_name_is_kept_and_it_can_be_shown(given: str, kept: str) -> None:
    assert base_name(given) == kept


def test_an_original_is_stored_once_under_its_hash_and_comes_back(library: Library) -> None:
    original = library.originals.save(b"words")
    assert library.originals.save(b"words") == original
    assert [path.name for path in (library.folder / "objects" / "originals").iterdir()] == [original.sha256]
    assert Originals(library.store_url).load(original) == b"words"


def test_an_original_that_is_not_there_or_not_the_same_is_said_so(library: Library) -> None:
    with pytest.raises(UnreadableDocument, match="is not in the object store"):
        library.originals.load(Original("0" * 64, 1))
    original = library.originals.save(b"words")
    (library.folder / "objects" / original.key).write_bytes(b"swords")
    with pytest.raises(UnreadableDocument, match="not what was submitted"):
        library.originals.load(original)
    library.originals.save(b"words")
    assert library.originals.load(original) == b"words"


def test_a_store_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("nonsense", "gopher://host/x"):
        with pytest.raises(StoreError, match=f"OBJECT_STORE_URL={url} cannot be used"):
            Originals(url)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be used"):
        Originals((tmp_path / "file").as_uri())
    monkeypatch.setenv("OBJECT_STORE_URL", (tmp_path / "named").as_uri())
    assert Originals().url.endswith("/named")


def test_without_a_url_the_store_is_a_folder_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OBJECT_STORE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    original = Originals().save(b"words")
    assert (tmp_path / "oomph-objects" / original.key).read_bytes() == b"words"


def test_a_service_that_submits_imports_neither_the_parser_nor_the_store() -> None:
    program = (
        "import sys, jobs\n"
        "assert not [name for name in sys.modules if name.startswith('jobs.documents')], 'jobs imports documents'\n"
        "import jobs.documents, jobs.documents.reports, jobs.documents.app\n"
        "jobs.documents.app.app()\n"
        "print([name for name in ('kreuzberg', 'obstore', 'psycopg_pool') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_document_that_does_not_exist_is_not_shown(library: Library) -> None:
    from jobs.documents.reports import show_documents

    assert show_documents(library.db, [uuid4()]) == []
