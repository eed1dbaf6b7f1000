"""`oomph ingest` and `oomph search`."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobs.documents.errors import UnreadableDocument
from jobs.documents.objects import Objects
from jobs.documents.submit import submit
from scripts import samples
from supervisor.commands.files import Skipped, find_files
from supervisor.commands.ingest import BUSY, Beginning, FileReport, _reindex_all, _submit_all
from supervisor.testing.processes import running_worker
from supervisor.testing.waiting import wait_for
from tests.documents.conftest import Library
from tests.documents.embedding import Shelf, embedding_server
from tests.documents.hostile import encrypted_pdf

ROOT = Path(__file__).parent.parent.parent
RETRIED = "Attempt 1 of 3 failed, will be retried. Reading the document failed: no answer"
SECTIONS = [("Engines", ["The analytical engine weaves algebraic patterns."])]


class Ran:
    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def environment(library: Library) -> Mapping[str, str]:
    unset = ("WORKER_", "OOMPH_", "COLUMNS")  # the last one is how wide a table may be
    clean = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    return {**clean, "DATABASE_URL": library.url, "OBJECT_STORE_URL": library.store_url}


def oomph(library: Library, *arguments: str, **variables: str) -> Ran:
    command = [sys.executable, "-c", "from supervisor.commands import main; main()", *arguments]
    given = {**environment(library), **variables}
    return Ran(subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=60))


def ingesting(library: Library, path: Path) -> "subprocess.Popen[str]":
    """`oomph ingest`, on its way."""
    command = [sys.executable, "-c", "from supervisor.commands import main; main()", "ingest", str(path)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment(library), stdout=pipe, stderr=pipe, text=True)


def failed_once(library: Library, filename: str, content: bytes, due: str = "0") -> None:
    """A document whose first attempt has failed, and whose next one is due in that time."""
    given = library.submit(filename, content)
    library.db.execute("UPDATE background_jobs SET status = 'running', attempt = 1 WHERE id = %s", [given.job_id])
    library.db.execute(
        "UPDATE background_jobs SET status = 'queued', run_after = now() + %s, error = %s WHERE id = %s",
        [due, '{"type": "StoreError", "message": "no answer"}', given.job_id],
    )


@pytest.fixture
def shelf(library: Library) -> Shelf:
    made = Shelf(library.db, library.folder)
    if why := made.index.refuses_vectors(library.db):
        pytest.skip(why)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "papers"
    (made / "more").mkdir(parents=True)
    (made / "a.docx").write_bytes(samples.docx(SECTIONS))
    (made / "more" / "b.pdf").write_bytes(samples.pdf([["Looms", "They weave flowers."], ["Ends", "A last page."]]))
    (made / "more" / ".hidden.txt").write_bytes(b"hidden")
    (made / ".git").mkdir()
    (made / ".git" / "config.txt").write_bytes(b"hidden")
    return made


def test_a_folder_is_ingested_and_found(library: Library, folder: Path) -> None:
    library.start()
    done = oomph(library, "ingest", str(folder))
    assert done.status == 0, done.err
    assert "2 READY" in done.err
    first, second = done.out.splitlines()[1:]
    assert first.split()[:3] == [str(folder / "a.docx"), "READY", "1"]
    assert second.split()[:4] == [str(folder / "more" / "b.pdf"), "READY", "2", "2"]
    found = oomph(library, "search", "flowers")
    assert found.status == 0
    assert "b.pdf | page 1 | Looms" in found.out
    assert "They weave flowers." in found.out
    assert (
        oomph(library, "search", "--json", "--", "weave", "-flowers", '"algebraic patterns"').json[0]["position"] == 0
    )
    (hit,) = oomph(library, "search", "--json", "last", "page").json
    assert (hit["filename"], hit["page"], hit["heading"]) == ("b.pdf", 2, "Ends")


def test_a_second_run_has_nothing_to_do(library: Library, folder: Path) -> None:
    library.start()
    first = oomph(library, "ingest", "--json", str(folder)).json
    second = oomph(library, "ingest", "--json", str(folder)).json
    assert second == first
    assert [row["status"] for row in first] == ["READY", "READY"]


def test_one_failure_makes_the_status_1_and_says_why(library: Library, folder: Path) -> None:
    (folder / "locked.pdf").write_bytes(encrypted_pdf())
    library.start()
    done = oomph(library, "ingest", str(folder))
    assert done.status == 1
    assert "1 FAILED, 2 READY" in done.err
    assert "The document is protected by a password." in done.out


def test_without_a_worker_it_says_how_to_start_one(library: Library, folder: Path) -> None:
    done = oomph(library, "ingest", str(folder))
    assert done.status == 1
    assert "Error: 2 documents wait, but no live worker ingests documents" in done.err
    assert "oomph worker --app jobs.documents.app:app" in done.err
    assert "Traceback" not in done.err
    library.start()
    assert oomph(library, "ingest", str(folder)).status == 0


def test_where_only_other_apps_are_served_it_says_which_worker_to_start(library: Library, folder: Path) -> None:
    with running_worker(library.url, library.folder / "other.log", "tests.worker.app:app"):
        done = oomph(library, "ingest", str(folder))
    assert done.status == 1
    assert "2 documents failed, because no live worker ingests documents; start one with" in done.err
    assert "`oomph worker --app jobs.documents.app:app`" in done.err


def test_what_waits_for_another_attempt_is_said_with_its_reason(library: Library, folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"words")
    failed_once(library, "a.txt", b"words", due="1 day")
    library.start()
    with ingesting(library, folder / "a.txt") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"1 waiting to be retried: a.txt: {RETRIED}\n"
        library.db.execute("UPDATE background_jobs SET run_after = now()")
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, "1 READY\n")


def test_an_interruption_says_what_goes_on(library: Library, folder: Path) -> None:
    library.start(WORKER_FAILPOINTS="document-chunking:stall=60")
    with ingesting(library, folder) as process:
        wait_for(
            lambda: library.db.execute("SELECT FROM background_documents WHERE status = 'CHUNKING'").fetchall(),
            "a document at the failpoint",
        )
        wait_for(
            lambda: library.db.execute("SELECT count(*) FROM background_documents").fetchall() == [(2,)],
            "both documents",
        )
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert told.startswith("Interrupted; 2 documents are submitted, and go on wherever a worker ingests documents")


def test_what_was_ready_before_is_not_waited_for(library: Library, folder: Path) -> None:
    with library.worker():
        assert oomph(library, "ingest", str(folder)).status == 0
    (folder / "new.txt").write_text("words")
    done = oomph(library, "ingest", str(folder))
    assert "1 documents wait, but no live worker" in done.err
    assert done.out.count("READY") == 2


def test_a_paused_kind_is_said_so(library: Library, folder: Path) -> None:
    library.db.execute(
        "INSERT INTO background_kinds (kind, paused_at, pause_reason) VALUES ('ingest-document', now(), 'five kills')"
    )
    library.start()
    done = oomph(library, "ingest", str(folder))
    assert done.status == 1
    assert "is paused: five kills" in done.err


def test_without_waiting_the_documents_are_only_submitted(library: Library, folder: Path) -> None:
    done = oomph(library, "ingest", "--no-wait", "--json", str(folder / "a.docx"))
    assert done.status == 0
    assert [(row["status"], row["job_id"] is not None) for row in done.json] == [("PENDING", True)]


def test_wrong_paths_and_queries_are_refused(library: Library, tmp_path: Path) -> None:
    assert (missing := oomph(library, "ingest", str(tmp_path / "nowhere"))).status == 2
    assert "nowhere does not exist" in missing.err
    (tmp_path / "empty").mkdir()
    assert "there are no files in" in oomph(library, "ingest", str(tmp_path / "empty")).err
    assert oomph(library, "search", " ").status == 2
    nothing = oomph(library, "search", "anything")
    assert (nothing.status, nothing.out, nothing.err) == (0, "", "nothing was found\n")
    assert oomph(library, "search", "--json", "anything").json == []


def test_a_store_that_cannot_be_used_is_said_so(library: Library, folder: Path) -> None:
    library.store_url = "gopher://x"
    done = oomph(library, "ingest", str(folder))
    assert done.status == 1
    assert "Error: OBJECT_STORE_URL=gopher://x cannot be used" in done.err


def test_on_a_terminal_a_bar_shows_documents_failures_and_rate(library: Library, folder: Path) -> None:
    library.start(WORKER_FAILPOINTS="document-chunking:stall=1.5")
    screen, terminal = pty.openpty()
    command = [sys.executable, "-c", "from supervisor.commands import main; main()", "ingest", str(folder)]
    variables = {**environment(library), "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        try:
            while piece := os.read(screen, 4096):
                shown += piece
        except OSError:  # how Linux reports that nobody holds the terminal any more
            pass
        assert process.wait(60) == 0
    os.close(screen)
    assert "2/2" in shown.decode()
    assert "0 failed" in shown.decode()
    assert "/s" in shown.decode()
    assert re.search("[12] chunking", shown.decode()), "the stages of those that run"


def test_files_are_found_sorted_and_once_and_the_rest_is_said(folder: Path) -> None:
    (folder / "big.txt").write_bytes(b"x" * ((1 << 20) + 1))
    (folder / "link").symlink_to(folder / "more")
    (folder / "broken").symlink_to(folder / "nowhere")
    (folder / "more" / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    found, skipped = find_files([folder, folder / "a.docx", folder / "more" / ".hidden.txt"], 1 << 20)
    names = [str(file.path.relative_to(folder)) for file in found]
    assert names == ["a.docx", "more/.hidden.txt", "more/b.pdf"]
    assert sorted((Path(name).name, why) for name, why in skipped) == [
        ("big.txt", "it has over 1 MB"),
        ("broken", "No such file or directory"),
        ("pipe", "it is no regular file"),
    ]


def test_the_object_store_and_a_server_in_a_folder_are_left_out_with_a_note(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "objects" / "documents").mkdir(parents=True)
    (folder / "objects" / "documents" / "original").write_bytes(b"words")
    (folder / "db" / "data").mkdir(parents=True)
    for name in ("users", "turn", "server.log", "data/PG_VERSION"):
        (folder / "db" / name).write_bytes(b"17")
    (folder / "here").symlink_to(folder)
    found, skipped = find_files([folder], 1 << 20, folder / "here" / "objects")
    assert [file.path.name for file in found] == ["a.docx", "b.pdf"]
    assert skipped == []
    assert capsys.readouterr().err.splitlines() == [
        f"{folder}/db is left out: it holds the files of a PostgreSQL server",
        f"{folder}/objects is left out: it is the object store",
    ]


def test_a_file_that_grew_became_a_pipe_or_vanished_is_not_half_read(library: Library, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    ((file,), _) = find_files([tmp_path / "a"], 10)
    (tmp_path / "a").write_bytes(b"x" * 11)
    with file.opened() as content, pytest.raises(UnreadableDocument, match="more than"):
        submit(library.db, "a", content, max_bytes=10, objects=library.objects)
    (tmp_path / "a").unlink()
    os.mkfifo(tmp_path / "a")
    with pytest.raises(Skipped, match="no regular file"), file.opened():
        pass
    (tmp_path / "a").unlink()
    with pytest.raises(FileNotFoundError), file.opened():
        pass


def test_names_of_any_bytes_are_ingested_and_shown(library: Library, tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "odd") + b"/bad\xff\n\x1b[31m.txt")).write_bytes(b"words")
    library.start()
    done = oomph(library, "ingest", str(tmp_path / "odd"))
    assert done.status == 0, done.err
    assert "\x1b" not in done.out
    (row,) = library.db.execute("SELECT filename FROM background_documents").fetchall()
    assert row[0].isprintable()


def test_documents_are_listed_shown_and_deleted(library: Library, folder: Path) -> None:
    library.start()
    assert oomph(library, "ingest", "--collection", "papers", str(folder)).status == 0
    library.settled(other := library.submit("other.txt", b"words"))
    listed = oomph(library, "documents", "list", "--collection", "papers", "--json").json
    assert [row["filename"] for row in listed] == ["b.pdf", "a.docx"], "newest first"
    assert {row["status"] for row in listed} == {"READY"}
    assert oomph(library, "documents", "list", "--json", "--limit", "1", "--before", listed[0]["id"]).json == listed[1:]
    assert [row["id"] for row in oomph(library, "documents", "list", "--json").json] == [
        str(other.document_id),
        *(row["id"] for row in listed),
    ]
    table = oomph(library, "documents", "list", "--status", "READY").out
    assert "b.pdf" in table
    shown = oomph(library, "documents", "show", listed[0]["id"]).out
    for fact in ("papers", "b.pdf", "READY", "application/pdf", "kreuzberg"):
        assert fact in shown
    assert oomph(library, "documents", "list", "--status", "ready").out == table
    nobody = oomph(library, "documents", "delete", listed[0]["id"])
    assert (nobody.status, "--actor" in nobody.err) == (2, True)
    delete = ("documents", "delete", "--actor", "ada")
    deleted = oomph(library, *delete, "--reason", "old", listed[0]["id"], listed[1]["id"])
    assert deleted.out.count("is deleted") == 2
    audit = library.db.execute("SELECT actor, action, target, reason FROM background_audit ORDER BY id").fetchall()
    assert audit == [("ada", "delete", f"document {listed[place]['id']}", "old") for place in (0, 1)]
    assert oomph(library, "documents", "list", "--collection", "papers", "--json").json == []
    again = oomph(library, *delete, listed[0]["id"])
    assert (again.status, "does not exist" in again.err) == (1, True)
    assert oomph(library, "documents", "show", listed[0]["id"]).status == 1
    assert oomph(library, "documents", "list", "--status", "DONE").status == 2


def test_it_is_shown_of_which_model_a_document_has_vectors(library: Library, shelf: Shelf) -> None:
    with embedding_server() as server:
        shelf.put("both.txt", "one", "two", embedder=server.embedder("counts"))
    shelf.put("words.txt", "one")
    ids = [row["id"] for row in oomph(library, "documents", "list", "--json").json]
    told = [oomph(library, "documents", "show", "--json", each).json["vectors"] for each in ids]
    assert [len(vectors) for vectors in told] == [0, 1], "newest first"
    (vectors,) = told[1]
    assert (vectors["model"], vectors["chunks"]) == ("counts", 2)
    texts = [oomph(library, "documents", "show", each).out for each in ids]
    assert "none: it is found by words only" in texts[0]
    assert f"2 of counts, {vectors['dimensions']} dimensions" in texts[1]


def test_documents_are_reindexed_and_followed(library: Library, folder: Path) -> None:
    library.start()
    first = oomph(library, "ingest", "--json", str(folder)).json
    one = oomph(library, "reindex", first[0]["document_id"], "--from", "snapshot")
    assert one.status == 0, one.err
    assert "1 READY" in one.err
    every = oomph(library, "reindex", "--all", "--json").json
    assert {row["document_id"] for row in every} == {row["document_id"] for row in first}
    assert {row["status"] for row in every} == {"READY"}
    assert not {row["job_id"] for row in every} & {row["job_id"] for row in first}
    assert oomph(library, "reindex").status == 2
    assert oomph(library, "reindex", "--all", first[0]["document_id"]).status == 2


def test_one_that_is_worked_on_is_not_reindexed_and_says_so(library: Library) -> None:
    given = library.submit("a.txt", b"words")
    done = oomph(library, "reindex", "--no-wait", str(given.document_id))
    assert done.status == 1
    assert f"is PENDING: job {given.job_id} works on it already" in done.out


def test_what_is_no_document_is_refused_and_the_rest_is_ingested(library: Library, folder: Path) -> None:
    (folder / "empty.txt").touch()
    (folder / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    library.start()
    done = oomph(library, "ingest", "--json", str(folder))
    assert done.status == 1
    refused = {Path(row["file"]).name: row["message"] for row in done.json if row["status"] == "REFUSED"}
    assert refused == {"empty.txt": "The file is empty.", "photo.png": "This type of file is not supported."}
    assert [row["status"] for row in done.json].count("READY") == 2


def test_a_document_whose_attempt_failed_says_so_while_it_waits(library: Library, folder: Path) -> None:
    failed_once(library, "a.txt", b"words")
    listed = oomph(library, "documents", "list")
    assert listed.out.splitlines()[-1].endswith(RETRIED)
    narrow = oomph(library, "documents", "list", COLUMNS="80")
    assert narrow.out.splitlines()[-1] == f"a.txt: {RETRIED}", "whole, below the table that has no room for it"
    assert narrow.out.count(RETRIED) == 1


def test_a_file_that_another_transaction_submits_does_not_stop_the_others(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.commands.ingest.STATEMENT_TIMEOUT", "200ms")
    for name in ("1.txt", "2.txt", "3.txt"):
        (folder / name).write_text(f"words of {name}")
    found, _ = find_files([folder / name for name in ("1.txt", "2.txt", "3.txt")], 1000)
    reports: list[FileReport] = []
    with psycopg.connect(library.url) as other:
        submit(other, "2.txt", b"words of 2.txt", objects=library.objects)
        submitted, trouble = _submit_all(library.db, library.objects, found, "default", reports)
    assert trouble is None
    assert [Path(report.file).name for report in submitted] == ["1.txt", "3.txt"]
    assert [(Path(report.file).name, report.status, report.message) for report in reports] == [
        ("2.txt", "REFUSED", BUSY)
    ]


def test_a_store_that_fails_in_the_middle_leaves_the_rest_and_tells_of_what_was_submitted(
    library: Library, folder: Path
) -> None:
    class Breaking(Objects):
        """The real store, whose folder becomes a file after the first object."""

        def put(self, key: str, content: bytes | Path) -> None:
            super().put(key, content)
            place = library.folder / "objects" / "documents"
            place.rename(place.with_name("gone"))
            place.write_bytes(b"")

    for name in ("1.txt", "2.txt", "3.txt"):
        (folder / name).write_text(f"words of {name}")
    found, _ = find_files([folder / name for name in ("1.txt", "2.txt", "3.txt")], 1000)
    submitted, trouble = _submit_all(library.db, Breaking(library.store_url), found, "default", [])
    assert [Path(report.file).name for report in submitted] == ["1.txt"]
    assert trouble is not None
    assert "2 files were not submitted, the first is" in trouble
    assert trouble.endswith("2.txt")


def test_a_document_that_another_transaction_holds_does_not_stop_a_reindex_of_all(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.commands.ingest.STATEMENT_TIMEOUT", "200ms")
    given = [library.submit(f"{number}.txt", b"words %d" % number) for number in range(3)]
    library.db.execute("UPDATE background_jobs SET status = 'succeeded'")
    reports: list[FileReport] = []
    with psycopg.connect(library.url) as other:
        submit(other, "1.txt", b"words 1", objects=library.objects)
        submitted = list(_reindex_all(library.db, None, None, Beginning.PARSE, reports))
    assert {report.document_id for report in submitted} == {given[0].document_id, given[2].document_id}
    assert [(report.document_id, report.message) for report in reports] == [(given[1].document_id, BUSY)]
