"""The whole way with vectors: real workers, a real server of embeddings, and what is found by meaning."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from jobs.documents.pipeline.embed import embed_question, embedder_from_environment
from jobs.documents.pipeline.index import PostgresIndex
from jobs.documents.reindex import reindex
from jobs.documents.search import Hits, search
from jobs.documents.task import Source
from jobs.migrate import migrate
from tests.documents.conftest import Library
from tests.documents.embedding import EmbeddingServer, embedding_server
from tests.documents.test_embed import local_model
from tests.system_server import programs, system_server

ROOT = Path(__file__).parents[2]
CAR, CAT = b"The automobile of the physician.", b"A feline that sleeps all day long."


@pytest.fixture
def server(library: Library) -> Iterator[EmbeddingServer]:
    if why := PostgresIndex().refuses_vectors(library.db):
        pytest.skip(why)
    with embedding_server() as running:
        yield running


def settings(server: EmbeddingServer) -> dict[str, str]:
    return {"EMBEDDING_URL": server.url, "EMBEDDING_MODEL": "counts", "EMBEDDING_API_KEY": "sk-secret-4711"}


def found(library: Library, server: EmbeddingServer, words: str) -> list[str]:
    hits: Hits = search(library.db, words, vector=embed_question(server.embedder(), words))
    return [hit.filename for hit in hits if "meaning" in hit.found_by]


def test_a_document_is_found_by_what_it_means(library: Library, server: EmbeddingServer) -> None:
    server.script({"status": 503}, {"drop": True}, {"status": 429, "headers": {"Retry-After": "1"}})
    library.start(**settings(server))
    documents = library.settled(library.submit("car.txt", CAR), library.submit("cat.txt", CAT))
    assert [(each.status, each.message) for each in documents] == [("READY", None)] * 2
    assert library.db.execute("SELECT count(*) FROM background_vectors_1").fetchone() == (2,)
    assert found(library, server, "doctor of the car") == ["car.txt", "cat.txt"]


def test_a_model_on_the_workers_own_disk_needs_no_server(library: Library, tmp_path: Path) -> None:
    if why := PostgresIndex().refuses_vectors(library.db):
        pytest.skip(why)
    url = local_model(tmp_path / "tiny").as_uri()
    library.start(EMBEDDING_URL=url)
    documents = library.settled(library.submit("car.txt", CAR), library.submit("cat.txt", CAT))
    assert [(each.status, each.message) for each in documents] == [("READY", None)] * 2
    embedder = embedder_from_environment({"EMBEDDING_URL": url})
    assert embedder is not None
    hits: Hits = search(library.db, "car", vector=embed_question(embedder, "car"))
    assert [hit.filename for hit in hits] == ["car.txt", "cat.txt"]
    assert hits.is_hybrid


def test_an_embedder_that_refuses_the_key_fails_the_document_with_a_sentence(
    library: Library, server: EmbeddingServer
) -> None:
    server.script({"status": 401, "body": "wrong key: sk-secret-4711"})
    worker = library.start(**settings(server))
    (document,) = library.settled(library.submit("car.txt", CAR))
    assert document.status == "FAILED"
    assert document.message is not None
    assert "refuses EMBEDDING_API_KEY" in document.message
    assert "4711" not in document.message
    assert "4711" not in worker.log.read_text()
    assert library.job(document.job_id) == ("dead", 1)
    assert library.chunks(document.id) == []


def test_an_embedder_that_answers_nonsense_is_asked_by_a_later_attempt(
    library: Library, server: EmbeddingServer
) -> None:
    server.script({"vectors": 1})
    library.start(**settings(server))
    (document,) = library.settled(library.submit("car.txt", CAR))
    assert document.status == "READY"
    assert library.job(document.job_id) == ("succeeded", 2)


def test_another_model_takes_over_from_the_snapshot_while_the_first_serves(
    library: Library, server: EmbeddingServer
) -> None:
    with library.worker(**settings(server)):
        given = library.submit("car.txt", CAR)
        library.settled(given)
    before = library.chunks(given.document_id)
    reindex(library.db, given.document_id, Source.SNAPSHOT)
    assert found(library, server, "car") == ["car.txt"]
    library.start(**settings(server) | {"EMBEDDING_MODEL": "other", "EMBEDDING_DIMENSIONS": "16"})
    (document,) = library.settled(given)
    assert (document.status, document.message) == ("READY", None)
    assert library.chunks(given.document_id) == before
    counts = [library.db.execute(f"SELECT count(*) FROM background_vectors_{each}").fetchone() for each in (1, 2)]
    assert counts == [(0,), (1,)]


@pytest.mark.skipif(programs() is None, reason="no PostgreSQL is installed on this system")
def test_on_a_server_without_the_extension_nothing_is_embedded_and_words_are_found(tmp_path: Path) -> None:
    with (
        system_server(Path("/tmp") / f"oomph-plain-{uuid.uuid4().hex[:12]}") as url,
        embedding_server() as server,
        psycopg.connect(url, autocommit=True) as db,
        ExitStack() as stack,
    ):
        migrate(url)
        if db.execute("SELECT FROM pg_available_extensions WHERE name = 'vector'").fetchone():
            pytest.skip("the server of this system has pgvector")
        library = Library(url, db, tmp_path, stack)
        worker = library.start(**settings(server))
        (document,) = library.settled(library.submit("car.txt", CAR))
        assert (document.status, document.message) == ("READY", None)
        assert server.seen() == []  # nothing was paid for
        assert "The extension pgvector is not installed" in " ".join(worker.log.read_text().split())
        hits: Hits = search(db, "automobile", vector=embed_question(server.embedder(), "automobile"))
        assert [hit.filename for hit in hits] == ["car.txt"]
        assert hits.note == "Found by words only: no document has vectors of the model counts with 64 dimensions."


def oomph_search(library: Library, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", "from supervisor.commands import main; main()", "search", *words]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={"PATH": "", "DATABASE_URL": library.url, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_command_searches_by_meaning_and_says_when_it_cannot(library: Library, server: EmbeddingServer) -> None:
    library.start(**settings(server))
    library.settled(library.submit("car.txt", CAR), library.submit("cat.txt", CAT, collection="pets"))
    done = oomph_search(library, "cat", **settings(server))
    assert (done.returncode, done.stdout.count(".txt"), done.stderr) == (0, 2, "")
    done = oomph_search(library, "cat", "--collection", "pets", "--limit", "1", **settings(server))
    assert done.stdout.startswith("cat.txt\n")
    assert oomph_search(library, "cat").stderr == "nothing was found\n"
    server.script(*[{"status": 500}] * 2)
    done = oomph_search(library, "feline", **settings(server))
    assert done.stderr.startswith("Found by words only. http://127.0.0.1:")
    assert done.stdout.startswith("cat.txt\n")
    done = oomph_search(library, "feline", **settings(server) | {"EMBEDDING_MODEL": "other"})
    assert done.returncode == 0
    assert "no document has vectors of the model other" in done.stderr
