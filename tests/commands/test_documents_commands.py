import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.conftest import Connection, Oomph
from tests.commands.test_worker_command import OOMPH, ROOT, WAIT_SECONDS
from tests.waiting import wait_for


@pytest.fixture
def store(tmp_path: Path) -> str:
    return (tmp_path / "objects").as_uri()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two documents, one of them twice, an empty file, and what is not meant: hidden files."""
    folder = tmp_path / "papers"
    (folder / "inner").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "whales.md").write_text("# Whales\n\nThe humpback whale sings for hours.\n")
    (folder / "inner" / "bees.txt").write_text("Bees dance to tell where flowers stand.\n")
    (folder / "inner" / "copy-of-whales.md").write_text("# Whales\n\nThe humpback whale sings for hours.\n")
    (folder / "empty.txt").write_text("")
    (folder / ".hidden.txt").write_text("hidden")
    (folder / ".git" / "config.txt").write_text("hidden")
    return folder


@pytest.fixture
def documents_worker(url: str, store: str, db: Connection, tmp_path: Path) -> Iterator[None]:
    environment = {"DATABASE_URL": url, "OBJECT_STORE_URL": store, "WORKER_INGEST_CONCURRENCY": "2"}
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [*OOMPH, "worker", "--app", "jobs.documents.app:app", "--pools", "ingest"],
            cwd=ROOT,
            env={"PATH": str(Path(sys.executable).parent), **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(lambda: db.execute("SELECT 1 FROM background_workers").fetchone(), "a worker", WAIT_SECONDS)
        yield
    finally:
        worker.terminate()
        worker.wait(WAIT_SECONDS)


@pytest.mark.usefixtures("documents_worker")
def test_what_was_ingested_is_found(oomph: Oomph, folder: Path, store: str, db: Connection) -> None:
    told = oomph("ingest", str(folder), OBJECT_STORE_URL=store)
    assert told.status == 1, told.err
    assert f"failed: {folder}/empty.txt: " in told.out
    assert told.out.splitlines()[-1] == "4 files: 2 ready, 1 failed; 1 of them had been submitted before"
    names = db.execute("SELECT filename FROM background_documents ORDER BY filename").fetchall()
    assert names == [("bees.txt",), ("empty.txt",), ("whales.md",)]

    again = oomph("ingest", str(folder / "whales.md"), "--json", OBJECT_STORE_URL=store).json
    assert [(row["path"], row["status"]) for row in again] == [(str(folder / "whales.md"), "READY")]

    (hit,) = oomph("search", "humpback", "sings", "--json").json
    assert hit["filename"] == "whales.md"
    assert hit.keys() >= {"document_id", "filename", "page", "heading", "snippet"}
    assert "humpback whale" in oomph("search", "humpback").out
    nothing = oomph("search", "unicorn")
    assert (nothing.status, nothing.out) == (0, "")


def test_without_a_worker_it_says_how_to_start_one(oomph: Oomph, folder: Path, store: str, db: Connection) -> None:
    told = oomph(
        "ingest", str(folder / "inner"), "--organization-id", "acme", "--priority", "bulk", OBJECT_STORE_URL=store
    )
    assert told.out == "2 files: 0 ready, 2 waiting\n"
    assert "oomph worker --app jobs.documents.app:app" in told.err
    rows = db.execute("SELECT status, organization_id, priority FROM background_jobs").fetchall()
    assert rows == [("queued", "acme", 2)] * 2


def test_a_path_that_is_not_there_submits_nothing(oomph: Oomph, folder: Path, store: str, db: Connection) -> None:
    assert "nothing was submitted" in oomph("ingest", str(folder), "/no/such/file", OBJECT_STORE_URL=store).refused()
    assert db.execute("SELECT count(*) FROM background_documents").fetchone() == (0,)


def test_an_object_store_that_is_none_is_told(oomph: Oomph, folder: Path) -> None:
    assert "OBJECT_STORE_URL=nonsense" in oomph("ingest", str(folder), OBJECT_STORE_URL="nonsense").refused()


def test_a_search_needs_words(oomph: Oomph) -> None:
    assert "search needs words" in oomph("search", " ").refused()
    assert "--limit" in oomph("search", "a", "--limit", "0").misused()
