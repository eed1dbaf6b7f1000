"""Submitting: one document for the same content, one job that works on it, all in the caller's transaction."""

import asyncio
import io
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import create_async_engine

from jobs.documents.errors import UnreadableDocument
from jobs.documents.keys import original_key
from jobs.documents.objects import Objects, StoreError
from jobs.documents.submit import Submission, base_name, submit
from scripts import samples
from supervisor.testing.waiting import wait_for
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
        {"document_id": str(given.document_id), "source": "parse"},
        3,
        "00:30:00",
    )


def test_a_transaction_that_is_rolled_back_leaves_neither(library: Library) -> None:
    with library.db.transaction(force_rollback=True):
        library.submit("a.txt", b"words")
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
    expected_jobs = 1
    if state == "failed":
        end_job(library.db, library.submit("a.txt", b"words").job_id, "dead")
        expected_jobs = 2
    given: list[Submission] = []

    def second() -> None:
        with psycopg.connect(library.url) as other:
            given.append(submit(other, "b.txt", b"words", objects=library.objects))

    with psycopg.connect(library.url) as first:
        given.append(submit(first, "a.txt", b"words", objects=library.objects))
        thread = threading.Thread(target=second)
        thread.start()
        while not library.db.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall():
            assert thread.is_alive()
    thread.join()
    assert [each.is_queued for each in given] == [True, False]
    assert given[0].job_id == given[1].job_id
    assert counts(library.db) == (1, expected_jobs)


def test_many_submitters_of_the_same_files_make_one_document_and_one_job_of_each(library: Library) -> None:
    def submit_all() -> None:
        with psycopg.connect(library.url, autocommit=True) as db:
            for number in range(10):
                with db.transaction():
                    submit(db, "a.txt", b"words %d" % number, objects=library.objects)

    with ThreadPoolExecutor(8) as threads:
        for submitting in [threads.submit(submit_all) for _ in range(8)]:
            submitting.result()
    assert counts(library.db) == (10, 10)
    assert len(library.stored()) == 10, "of those that were second, the object is removed again"


async def with_psycopg(url: str, objects: Objects) -> Submission:
    async with await psycopg.AsyncConnection.connect(url) as db:
        return await submit(db, "a.txt", BytesIO(b"words"), objects=objects)  # type: ignore[no-any-return]


async def with_sqlalchemy(url: str, objects: Objects) -> Submission:
    engine = create_async_engine("postgresql+psycopg://", connect_args=conninfo_to_dict(url))
    async with engine.begin() as db:
        given: Submission = await submit(db, "a.txt", BytesIO(b"words"), objects=objects)
    await engine.dispose()
    return given


async def with_asyncpg(url: str, objects: Objects) -> Submission:
    parts = conninfo_to_dict(url)
    db = await asyncpg.connect(host=parts["host"], port=parts.get("port"), user=parts["user"], database=parts["dbname"])
    async with db.transaction():
        given: Submission = await submit(db, "a.txt", BytesIO(b"words"), objects=objects)
    await db.close()
    return given


@pytest.mark.parametrize("way", [with_psycopg, with_sqlalchemy, with_asyncpg])
async def test_a_service_submits_on_the_connection_it_has(library: Library, way: Callable[..., object]) -> None:
    objects = library.objects
    made = await way(library.url, objects)  # type: ignore[misc]
    again = await way(library.url, objects)  # type: ignore[misc]
    assert type(made.document_id) is UUID
    assert (made.is_new, again.is_new, again.document_id) == (True, False, made.document_id)
    end_job(library.db, made.job_id, "dead")
    assert (await way(library.url, objects)).is_queued  # type: ignore[misc]
    assert counts(library.db) == (1, 2)


def test_a_service_submits_on_a_synchronous_sqlalchemy_connection(library: Library) -> None:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", connect_args=conninfo_to_dict(library.url))
    with engine.begin() as db:
        assert submit(db, "a.txt", b"words", objects=library.objects).is_new
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


def test_an_original_is_stored_as_it_came_also_from_a_stream(library: Library) -> None:
    content = b"words, " * 3_000_000
    with library.db.transaction():
        given = submit(library.db, "a.txt", BytesIO(content), objects=library.objects)
    assert library.stored() == [original_key(given.document_id)]
    assert library.objects.get(original_key(given.document_id)) == content
    assert library.document(given.document_id).size == len(content)


def test_the_same_content_is_one_document_of_each_collection(library: Library) -> None:
    first, second = library.submit("a.txt", b"words", "here"), library.submit("a.txt", b"words", "there")
    assert first.document_id != second.document_id
    assert library.document(second.document_id).collection == "there"
    assert len(library.stored()) == 2
    with pytest.raises(ValueError, match="collection"):
        library.submit("a.txt", b"words", "")


@pytest.mark.parametrize(
    ("filename", "content", "why"),
    [
        ("empty.txt", b"", "The file is empty."),
        ("blank.txt", b" \n", "The file is empty."),
        ("photo.png", b"\x89PNG\r\n\x1a\n" + bytes(100), "This type of file is not supported."),
        ("archive.zip", samples.archive({"a": b"b"}), "This type of file is not supported."),
        ("big.txt", b"x" * 1_000_001, "The file has more than 0 MB."),
    ],
)
@pytest.mark.parametrize("way", [bytes, BytesIO])
def test_what_nothing_parses_is_refused_before_anything_is_stored(
    library: Library, filename: str, content: bytes, why: str, way: Callable[[bytes], bytes | BytesIO]
) -> None:
    with pytest.raises(UnreadableDocument, match=why):
        submit(library.db, filename, way(content), objects=library.objects, max_bytes=1_000_000)
    assert (counts(library.db), library.stored()) == ((0, 0), [])


@pytest.mark.parametrize("way", [bytes, BytesIO])
def test_the_type_of_an_old_office_file_is_told_by_its_directory_wherever_that_lies(
    library: Library, way: Callable[[bytes], bytes | BytesIO]
) -> None:
    content = bytearray(200 << 10)
    content[:8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    content[30:32], content[48:52] = (9).to_bytes(2, "little"), (300).to_bytes(4, "little")
    name = "WordDocument".encode("utf-16-le")
    content[301 << 9 : (301 << 9) + len(name)] = name
    with library.db.transaction():
        given = submit(library.db, "report", way(bytes(content)), objects=library.objects)
    assert library.document(given.document_id).mime_type == "application/msword"


def test_the_limit_of_size_is_a_setting(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCUMENT_MAX_MB", "1")
    with pytest.raises(UnreadableDocument, match="more than 1 MB"):
        library.submit("a.txt", b"x" * ((1 << 20) + 1))
    monkeypatch.setenv("DOCUMENT_MAX_MB", "few")
    with pytest.raises(ValueError, match="DOCUMENT_MAX_MB=few"):
        library.submit("a.txt", b"x")


@pytest.mark.parametrize("table", ["background_documents", "background_jobs"])
def test_an_object_is_removed_again_where_its_rows_cannot_be_written(library: Library, table: str) -> None:
    library.db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no more room'; END $$"
    )
    library.db.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON {table} EXECUTE FUNCTION refuse()")
    with pytest.raises(psycopg.errors.RaiseException), library.db.transaction():
        library.submit("a.txt", b"words")
    assert (counts(library.db), library.stored()) == ((0, 0), [])


async def test_an_object_is_removed_again_where_an_asynchronous_submission_fails(library: Library) -> None:
    library.db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no more room'; END $$"
    )
    library.db.execute("CREATE TRIGGER refuse BEFORE INSERT ON background_jobs EXECUTE FUNCTION refuse()")
    with pytest.raises(psycopg.errors.RaiseException):
        await with_psycopg(library.url, library.objects)
    assert (counts(library.db), library.stored()) == ((0, 0), [])


@pytest.mark.parametrize("content", ["words", io.StringIO("words")])
def test_text_is_refused_as_what_is_no_file(library: Library, content: Any) -> None:
    with pytest.raises(TypeError, match="content must be bytes or a binary stream"):
        submit(library.db, "a.md", content, objects=library.objects)
    assert counts(library.db) == (0, 0)


def test_without_a_store_nothing_is_written(library: Library, caplog: pytest.LogCaptureFixture) -> None:
    (library.folder / "objects").mkdir()
    (library.folder / "objects" / "documents").write_bytes(b"in the way")
    with pytest.raises(StoreError, match="did not take"), library.db.transaction():
        library.submit("a.txt", b"words")
    assert counts(library.db) == (0, 0)
    assert caplog.messages == [], "nothing stays there"


def test_a_store_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path.cwd().as_uri()
    for url, advice in (
        ("papers", f"a folder is written {here}/papers"),
        ("/tmp/x y", "a folder is written file:///tmp/x%20y"),
        ("file:papers", f"a folder is written {here}/papers"),
        ("gopher://host/x", "allowed are file:///folder, s3://"),
    ):
        with pytest.raises(StoreError, match=f"OBJECT_STORE_URL={url} cannot be used: {advice}"):
            Objects(url)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be used"):
        Objects((tmp_path / "file").as_uri())
    monkeypatch.setenv("OBJECT_STORE_URL", (tmp_path / "named").as_uri())
    assert Objects().url.endswith("/named")


def test_without_a_url_the_store_is_a_folder_here(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OBJECT_STORE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    given = submit(library.db, "a.txt", b"words")
    assert (tmp_path / "oomph-objects" / original_key(given.document_id)).read_bytes() == b"words"


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


@pytest.mark.parametrize("state", ["queued", "retried"])
def test_a_submitter_who_keeps_the_transaction_open_holds_up_no_job(library: Library, state: str) -> None:
    first = library.submit("a.txt", b"words of one")
    if state == "retried":
        end_job(library.db, first.job_id, "dead")
    with psycopg.connect(library.url) as again, psycopg.connect(library.url) as other:
        given: list[Submission] = []
        if state == "retried":
            submit(again, "b.txt", b"words of one", objects=library.objects)
        thread = threading.Thread(
            target=lambda: given.append(submit(other, "c.txt", b"words of one", objects=library.objects))
        )
        thread.start()
        while (
            state == "retried"
            and not library.db.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall()
        ):
            assert thread.is_alive()
        again.commit()
        thread.join()
        assert not given[0].is_queued
        library.start()
        second = library.submit("d.txt", b"words of two")
        assert [row.status for row in library.settled(given[0], second, seconds=20)] == ["READY", "READY"]


def test_a_document_is_not_deleted_before_who_submitted_it_again_has_committed(library: Library) -> None:
    first = library.submit("a.txt", b"words")
    end_job(library.db, first.job_id, "succeeded")
    with psycopg.connect(library.url) as other:
        assert submit(other, "a.txt", b"words", objects=library.objects).document_id == first.document_id
        library.db.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            library.delete(first.document_id)
    library.delete(first.document_id)


@pytest.mark.parametrize("wrong", [{"organization_id": "x" * 501}, {"priority": 7}])
def test_what_no_job_may_have_is_refused_before_anything_is_written(library: Library, wrong: Any) -> None:
    with psycopg.connect(library.url) as db:
        with pytest.raises((TypeError, ValueError)):
            submit(db, "a.txt", b"words", objects=library.objects, **wrong)
        db.commit()  # whoever catches it may have more to write
    assert counts(library.db) == (0, 0)
    assert library.stored() == []


def test_a_submission_that_ends_half_way_without_a_transaction_can_be_repeated(library: Library) -> None:
    library.db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$; "
        "CREATE TRIGGER refuse BEFORE INSERT ON background_jobs EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(psycopg.errors.RaiseException):
        submit(library.db, "a.txt", b"words", objects=library.objects)
    library.db.execute("DROP TRIGGER refuse ON background_jobs")
    given = library.submit("a.txt", b"words")
    assert given.is_queued
    library.start()
    (row,) = library.settled(given)
    assert (row.status, row.message) == ("READY", None)


def test_a_job_that_is_seen_before_its_document_has_it_is_tried_again(library: Library) -> None:
    given = library.submit("a.txt", b"words")
    library.db.execute("UPDATE background_documents SET job_id = NULL")
    library.start(WORKER_RETRY_DELAY_SECONDS="1")
    wait_for(lambda: library.verdicts(given.job_id) == ["failed"], "an attempt that found no owner")
    library.db.execute("UPDATE background_documents SET job_id = %s", [given.job_id])
    assert [row.status for row in library.settled(given)] == ["READY"]


async def test_a_submission_that_is_cancelled_while_its_file_is_stored_leaves_nothing(library: Library) -> None:
    is_storing, go_on, is_stored = threading.Event(), threading.Event(), threading.Event()

    class Slow(Objects):
        """The real store, which takes a file only when it may."""

        def put(self, key: str, content: bytes | Path) -> None:
            is_storing.set()
            go_on.wait(10)
            super().put(key, content)
            is_stored.set()

    async with await psycopg.AsyncConnection.connect(library.url) as db:
        submitting = asyncio.create_task(submit(db, "a.txt", b"words", objects=Slow(library.store_url)))
        await asyncio.to_thread(is_storing.wait, 10)
        submitting.cancel()
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.1, go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await submitting
    assert await asyncio.to_thread(is_stored.wait, 10)
    assert library.stored() == []
    assert counts(library.db) == (0, 0)
