"""A folder that is kept ingested: new, changed, moved and removed files; and what must never be read or deleted."""

import logging
import os
import secrets
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import psycopg
import pytest

from jobs.documents.folder import FolderUnusable, Watch
from jobs.documents.submit import Submission, submit
from jobs.failpoints import Failpoint
from supervisor.testing.waiting import wait_for
from tests.documents.conftest import Library


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "inbox"
    made.mkdir()
    return made


def write(path: Path, text: str) -> None:
    """As it was a minute ago, so that it counts as finished; each at another moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    before = time.time_ns() - 60_000_000_000
    os.utime(path, ns=(before, before))


def look(library: Library, folder: Path) -> None:
    Watch(library.db, library.objects, folder, "inbox").look()


def documents(library: Library) -> dict[str, UUID]:
    """What is there by name, without what is being deleted."""
    rows = library.db.execute("SELECT filename, id FROM background_documents WHERE deleted_at IS NULL").fetchall()
    return dict(rows)


def settle(library: Library, folder: Path) -> None:
    """Look until nothing changes any more: what waits for a document does not wait any longer."""
    ids = documents(library).values()
    library.settled(*(Submission(each, None, "", is_new=False, is_queued=False) for each in ids))
    look(library, folder)


def test_a_schedule_keeps_a_folder_ingested(library: Library, folder: Path) -> None:
    write(folder / "a.txt", "looms weave")
    write(folder / "more" / "b.txt", "engines weave")
    library.start(DOCUMENT_FOLDER=str(folder), DOCUMENT_FOLDER_SECONDS="1", DOCUMENT_FOLDER_COLLECTION="inbox")
    wait_for(lambda: len(library.found("weave")) == 2, "both found")
    assert {row.collection for row in library.documents(*documents(library).values())} == {"inbox"}
    write(folder / "a.txt", "looms knit")
    wait_for(lambda: library.found("knit") and len(library.found("weave")) == 1, "the changed one found anew")
    (folder / "more" / "b.txt").unlink()
    wait_for(lambda: library.found("weave") == set(), "the removed one not found")
    (row,) = library.db.execute("SELECT count(*) FROM background_jobs WHERE kind = 'ingest-folder' AND status = 'dead'")
    assert row == (0,)


def test_an_unchanged_file_is_not_read_again(library: Library, folder: Path) -> None:
    write(folder / "a.txt", "words")
    look(library, folder)
    first = documents(library)
    (folder / "a.txt").chmod(0)  # root reads it all the same; what matters is that no job is made
    look(library, folder)
    assert documents(library) == first
    assert library.db.execute("SELECT count(*) FROM background_jobs").fetchone() == (1,)


def test_the_document_of_a_changed_file_serves_until_the_new_one_is_ready(library: Library, folder: Path) -> None:
    write(folder / "a.txt", "old looms")
    look(library, folder)
    with library.worker():
        settle(library, folder)
    (old,) = library.found("looms")
    write(folder / "a.txt", "new looms")
    look(library, folder)
    assert library.found("looms") == {old}
    look(library, folder)
    assert library.found("old") == {old}, "also after another look"
    library.start()
    wait_for(lambda: len(library.found("looms")) == 2, "the new one READY")
    look(library, folder)
    assert library.found("old") == set()
    (new,) = library.found("looms")
    assert documents(library) == {"a.txt": new}


def test_of_a_file_that_changes_again_and_again_the_last_that_was_ready_serves(library: Library, folder: Path) -> None:
    with library.worker():
        write(folder / "a.txt", "looms one")
        look(library, folder)
        settle(library, folder)
    (old,) = library.found("looms")
    for text in ("looms two", "looms three"):
        write(folder / "a.txt", text)
        look(library, folder)
    assert library.found("looms") == {old}
    library.start()
    wait_for(lambda: library.found("three"), "the last one READY")
    settle(library, folder)
    assert library.found("two") == set() == library.found("one")
    assert len(documents(library)) == 1


def test_a_file_that_is_no_document_any_more_takes_its_document_with_it(
    library: Library, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oomph.documents")
    write(folder / "a.txt", "looms")
    look(library, folder)
    library.start()
    settle(library, folder)
    write(folder / "a.txt", " ")
    look(library, folder)
    assert "'a.txt' is no document: The file is empty." in caplog.text
    assert documents(library) == {}
    look(library, folder)
    assert caplog.text.count("is no document") == 1


def test_a_moved_file_and_a_copy_keep_their_document(library: Library, folder: Path) -> None:
    write(folder / "a.txt", "looms")
    write(folder / "copy.txt", "looms")
    look(library, folder)
    (document_id,) = documents(library).values()
    (folder / "a.txt").rename(folder / "b.txt")
    look(library, folder)
    assert set(documents(library).values()) == {document_id}
    (folder / "copy.txt").unlink()
    look(library, folder)
    assert set(documents(library).values()) == {document_id}
    (folder / "b.txt").unlink()
    look(library, folder)
    assert documents(library) == {}


def test_what_others_submitted_stays_when_the_file_goes(library: Library, folder: Path) -> None:
    given = library.submit("mine.txt", b"looms", "inbox")
    write(folder / "a.txt", "looms")
    look(library, folder)
    (folder / "a.txt").unlink()
    look(library, folder)
    assert documents(library) == {"mine.txt": given.document_id}


def test_a_document_that_is_being_read_is_deleted_by_a_later_look(library: Library, folder: Path) -> None:
    write(folder / "a.txt", "looms")
    look(library, folder)
    with library.worker(WORKER_FAILPOINTS=f"{Failpoint.DOCUMENT_CHUNKING}:stop"):
        (document_id,) = documents(library).values()
        wait_for(lambda: library.document(document_id).status == "CHUNKING", "a job that runs")
        (folder / "a.txt").unlink()
        look(library, folder)
        assert documents(library) == {"a.txt": document_id}
    library.start()
    settle(library, folder)
    assert documents(library) == {}


def test_a_file_that_is_still_being_written_is_left_to_a_later_look(library: Library, folder: Path) -> None:
    (folder / "a.txt").write_text("half a sen")
    look(library, folder)
    assert documents(library) == {}
    write(folder / "a.txt", "half a sentence, and the rest")
    look(library, folder)
    assert list(documents(library)) == ["a.txt"]


def test_links_hidden_files_and_pipes_are_left_out(library: Library, folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "secret.txt", "secret looms")
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere" / "b.txt", "other looms")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "elsewhere").symlink_to(tmp_path / "elsewhere")
    (folder / "loop").symlink_to(folder)
    write(folder / ".hidden.txt", "hidden looms")
    write(folder / ".git" / "config.txt", "hidden looms")
    os.mkfifo(folder / "pipe.txt")
    look(library, folder)
    assert documents(library) == {}


def test_a_folder_that_cannot_be_read_deletes_nothing(library: Library, folder: Path) -> None:
    write(folder / "a.txt", "looms")
    look(library, folder)
    folder.rename(folder.with_name("away"))
    with pytest.raises(FolderUnusable, match=f"DOCUMENT_FOLDER={folder} cannot be read: No such file"):
        look(library, folder)
    assert list(documents(library)) == ["a.txt"]


def test_the_object_store_and_a_server_inside_the_folder_are_left_out(
    library: Library, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oomph.documents")
    library.store_url = (folder / "my store").as_uri()
    write(folder / "a.txt", "looms")
    write(folder / "db" / "data" / "PG_VERSION", "17")
    for name in ("users", "turn", "server.log"):
        write(folder / "db" / name, "words")
    write(folder / "cluster" / "PG_VERSION", "17")
    write(folder / "cluster" / "postgresql.conf.txt", "words")
    for _ in range(2):
        look(library, folder)
        assert list(documents(library)) == ["a.txt"]
    for name, why in (("my store", "it is the object store"), ("db", "PostgreSQL"), ("cluster", "PostgreSQL")):
        told = [line for line in caplog.messages if f"'{folder / name}' is left out" in line]
        assert len(told) == 1, caplog.messages
        assert why in told[0]
    (folder / "a.txt").unlink()
    look(library, folder)
    assert documents(library) == {}, "the original in the store is no other file of the same content"


def test_a_folder_in_which_a_server_was_made_loses_no_document(library: Library, folder: Path) -> None:
    write(folder / "a.txt", "looms")
    look(library, folder)
    write(folder / "PG_VERSION", "17")
    with pytest.raises(
        FolderUnusable, match=f"DOCUMENT_FOLDER={folder} is not watched: it holds the files of a Postgr"
    ):
        look(library, folder)
    assert list(documents(library)) == ["a.txt"]


def test_names_of_any_bytes_are_kept_apart(library: Library, folder: Path) -> None:
    for name in (b"a\xff.txt", b"a\xfe.txt", b"a\n.txt"):
        write(Path(os.fsdecode(os.fsencode(folder) + b"/" + name)), f"looms {name!r}")
    look(library, folder)
    look(library, folder)
    assert library.db.execute("SELECT count(*) FROM background_document_files").fetchone() == (3,)
    assert library.db.execute("SELECT count(*) FROM background_documents").fetchone() == (3,)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a file system that keeps any time")
def test_files_of_any_time_are_ingested_once(library: Library) -> None:
    with TemporaryDirectory(dir="/dev/shm") as given:
        folder = Path(given)
        for number, seconds in enumerate((-(2**40), -1, 2**33, 2**34, 2**40)):
            path = folder / f"{number}.txt"
            path.write_text(f"words {number}")
            os.utime(path, ns=(0, seconds * 10**9))
        for _ in range(2):
            Watch(library.db, library.objects, folder).look()
            assert len(library.db.execute("SELECT 1 FROM background_documents").fetchall()) == 5


def test_a_path_that_no_index_takes_is_left_out_and_the_others_are_ingested(library: Library, folder: Path) -> None:
    deep = folder
    for _ in range(14):
        deep = deep / secrets.token_hex(120)
        deep.mkdir()
    for path in (deep / "a.txt", folder / "b.txt"):
        path.write_text("words of " + path.name)
        os.utime(path, (1e9, 1e9))
    look(library, folder)
    assert library.db.execute("SELECT filename FROM background_documents").fetchall() == [("b.txt",)]
    assert len(library.stored()) == 1


def test_a_file_that_another_transaction_submits_is_left_to_the_next_look(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.documents.folder.LOCK_TIMEOUT", "200ms")
    for name in ("1.txt", "2.txt", "3.txt"):
        write(folder / name, f"words of {name}")
    with psycopg.connect(library.url) as other:
        library.db.execute("SET statement_timeout = '10s'")  # a look that waits for it would wait for ever
        submit(other, "2.txt", b"words of 2.txt", objects=library.objects, collection="inbox")
        look(library, folder)
        assert set(documents(library)) == {"1.txt", "3.txt"}
        other.rollback()
    look(library, folder)
    assert set(documents(library)) == {"1.txt", "2.txt", "3.txt"}
