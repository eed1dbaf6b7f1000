"""`oomph ingest` and `oomph search`."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.documents.errors import UnreadableDocument
from jobs.documents.submit import submit
from scripts import samples
from supervisor.commands.files import Skipped, find_files
from tests.documents.conftest import Library
from tests.documents.hostile import encrypted_pdf

ROOT = Path(__file__).parent.parent.parent
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


def oomph(library: Library, *arguments: str) -> Ran:
    command = [sys.executable, "-c", "from supervisor.commands import main; main()", *arguments]
    return Ran(subprocess.run(command, cwd=ROOT, env=environment(library), capture_output=True, text=True, timeout=60))


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
    deleted = oomph(library, "documents", "delete", listed[0]["id"], listed[1]["id"])
    assert deleted.out.count("is deleted") == 2
    assert oomph(library, "documents", "list", "--collection", "papers", "--json").json == []
    again = oomph(library, "documents", "delete", listed[0]["id"])
    assert (again.status, "does not exist" in again.err) == (1, True)
    assert oomph(library, "documents", "show", listed[0]["id"]).status == 1
    assert oomph(library, "documents", "list", "--status", "DONE").status == 2


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
    given = library.submit("a.txt", b"words")
    library.db.execute("UPDATE background_jobs SET status = 'running', attempt = 1 WHERE id = %s", [given.job_id])
    library.db.execute(
        'UPDATE background_jobs SET status = \'queued\', error = \'{"type": "StoreError", "message": "no answer"}\''
    )
    listed = oomph(library, "documents", "list")
    assert "Attempt 1 of 3 failed, will be retried. Reading the document failed: no answer" in listed.out
