"""The index: one document's rows replaced whole, vectors where the server stores them."""

import threading
import uuid
from array import array
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from jobs.documents.pipeline.embed import embed_question
from jobs.documents.pipeline.index import PostgresIndex
from jobs.documents.pipeline.vectors import VectorFile, VectorWriter
from jobs.documents.question import QuestionVector
from jobs.documents.search import search
from jobs.migrate import migrate
from jobs.sql import statement
from tests.documents.embedding import Connection, EmbeddingServer, Shelf, chunks_of, embedding_server
from tests.system_server import programs, system_server


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as running:
        yield running


@pytest.fixture
def shelf(db: Connection, tmp_path: Path) -> Shelf:
    made = Shelf(db, tmp_path)
    if why := made.index.refuses_vectors(db):
        pytest.skip(why)
    return made


def spilled(path: Path, *rows: list[float], model: str = "m") -> VectorFile:
    with VectorWriter(path, model) as writer:
        for row in rows:
            writer.write(row)
        return writer.finished()


def columns(shelf: Shelf) -> list[tuple[object, ...]]:
    return shelf.db.execute(
        "SELECT id, position, page, heading, text FROM background_document_chunks ORDER BY document_id, position"
    ).fetchall()


def test_a_documents_chunks_take_the_place_of_those_before(shelf: Shelf, server: EmbeddingServer) -> None:
    other = shelf.put("other.txt", "stays", embedder=server.embedder())
    document = shelf.add("a.txt")
    shelf.fill(document, ["one", "two", "three"], server.embedder())
    chunks = shelf.fill(document, ["one", "zwei"], server.embedder())
    assert sorted(columns(shelf), key=str) == sorted(
        ((each.id, each.position, each.page, each.heading, each.text) for each in other + chunks), key=str
    )
    assert shelf.count("background_vectors_1") == 3


def test_the_same_text_gives_the_same_rows(shelf: Shelf, server: EmbeddingServer) -> None:
    document = shelf.add("a.txt")
    shelf.fill(document, ["one", "two"], server.embedder())
    before = columns(shelf)
    shelf.fill(document, ["one", "two"], server.embedder())
    assert columns(shelf) == before


def test_what_a_transaction_that_failed_wrote_is_gone(shelf: Shelf, tmp_path: Path) -> None:
    document = shelf.add("a.txt")
    shelf.fill(document, ["old"])
    with pytest.raises(ZeroDivisionError), shelf.db.transaction():  # noqa: PT012
        shelf.index.replace(shelf.db, document, chunks_of(document, ["new"]), spilled(tmp_path / "v", [1.0]))
        raise ZeroDivisionError
    assert [row[4] for row in columns(shelf)] == ["old"]
    assert shelf.count("background_vector_models") == 0


def test_a_number_of_vectors_that_is_not_that_of_chunks_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    document = shelf.add("a.txt")
    for texts in (["a"], ["a", "b", "c"]):
        vectors = spilled(tmp_path / "v", [1.0], [2.0])
        with pytest.raises(ValueError, match=f"2 vectors for {len(texts)} chunks"), shelf.db.transaction():
            shelf.index.replace(shelf.db, document, chunks_of(document, texts), vectors)
    assert columns(shelf) == []


def test_a_document_without_chunks_has_no_vectors(shelf: Shelf, tmp_path: Path) -> None:
    document = shelf.add("a.txt")
    with shelf.db.transaction():
        assert shelf.index.replace(shelf.db, document, [], spilled(tmp_path / "v")) == 0


def test_what_is_removed_leaves_no_row(shelf: Shelf, server: EmbeddingServer) -> None:
    document = shelf.add("a.txt")
    shelf.fill(document, ["one", "two"], server.embedder())
    shelf.index.remove(shelf.db, document)
    assert shelf.count("background_document_chunks") == shelf.count("background_vectors_1") == 0
    shelf.fill(document, ["one", "two"], server.embedder())
    shelf.db.execute("DELETE FROM background_documents WHERE id = %s", [document])
    assert shelf.count("background_document_chunks") == shelf.count("background_vectors_1") == 0


def test_each_model_has_a_table_of_its_own(shelf: Shelf, server: EmbeddingServer) -> None:
    """A document that was embedded by another model keeps no vector of the one before."""
    document = shelf.add("a.txt")
    shelf.fill(document, ["one", "two"], server.embedder("first"))
    shelf.put("b.txt", "three", embedder=server.embedder("first"))
    shelf.fill(document, ["one", "two"], server.embedder("second"))
    shelf.fill(shelf.add("c.txt"), ["four"], server.embedder("second", dimensions=8))
    models = shelf.db.execute("SELECT id, model, dimensions FROM background_vector_models ORDER BY id").fetchall()
    assert [model[1:] for model in models] == [("first", 64), ("second", 64), ("second", 8)]
    assert [shelf.count(f"background_vectors_{model[0]}") for model in models] == [1, 2, 1]


def forget(shelf: Shelf) -> list[str]:
    return [row[0] for row in shelf.db.execute(statement("forget_models"))]


def test_the_table_of_a_model_that_nobody_uses_goes(shelf: Shelf, server: EmbeddingServer) -> None:
    document = shelf.add("a.txt")
    shelf.fill(document, ["one"], server.embedder("old"))
    shelf.fill(document, ["one"], server.embedder("new"))
    assert forget(shelf) == ["old"]
    assert forget(shelf) == []
    assert shelf.db.execute(
        "SELECT to_regclass('background_vectors_1'), model FROM background_vector_models"
    ).fetchall() == [(None, "new")]
    shelf.fill(document, ["one"], server.embedder("old"))
    assert forget(shelf) == ["new"]


def test_a_model_that_is_just_being_used_for_the_first_time_is_not_forgotten(
    shelf: Shelf, url: str, tmp_path: Path
) -> None:
    document = shelf.add("a.txt")
    shelf.db.execute("SELECT background_make_vector_table('m', 1)")
    with psycopg.connect(url) as writer:
        writer.execute("SELECT background_make_vector_table('m', 1)")
        assert forget(shelf) == []  # and waits for nobody
        vectors = spilled(tmp_path / "v", [1.0])
        shelf.index.replace(writer, document, chunks_of(document, ["a"]), vectors)
    assert shelf.count("background_vectors_1") == 1


@pytest.mark.parametrize(
    ("dimensions", "stored"), [(2000, "vector(2000)"), (2001, "halfvec(2001)"), (4000, "halfvec(4000)")]
)
def test_long_vectors_are_stored_in_half_precision(shelf: Shelf, tmp_path: Path, dimensions: int, stored: str) -> None:
    document = shelf.add("a.txt")
    row = [float(number % 7) - 3.1 for number in range(dimensions)]
    with shelf.db.transaction():
        shelf.index.replace(shelf.db, document, chunks_of(document, ["a"]), spilled(tmp_path / "v", row))
    found = shelf.db.execute(
        "SELECT format_type(atttypid, atttypmod), indexdef FROM pg_attribute, pg_indexes "
        "WHERE attrelid = 'background_vectors_1'::regclass AND attname = 'embedding' AND indexdef LIKE '%hnsw%'"
    ).fetchone()
    assert found is not None
    assert found[0] == stored
    (text,) = shelf.db.execute("SELECT embedding::text FROM background_vectors_1").fetchone() or ("",)
    assert [float(part) for part in str(text)[1:-1].split(",")] == pytest.approx(row, rel=1e-3)
    (hit,) = search(shelf.db, "nothing", vector=QuestionVector("m", row))
    assert hit.found_by == ["meaning"]


def test_more_dimensions_than_an_index_holds_are_refused(shelf: Shelf, tmp_path: Path) -> None:
    document = shelf.add("a.txt")
    with pytest.raises(errors.CheckViolation), shelf.db.transaction():
        shelf.index.replace(shelf.db, document, chunks_of(document, ["a"]), spilled(tmp_path / "v", [1.0] * 4001))


def test_float32_comes_back_exactly(shelf: Shelf, tmp_path: Path) -> None:
    row = array("f", [0.1, 1 / 3, 1e-30, -123456.789, 3.4e38])
    document = shelf.add("a.txt")
    with shelf.db.transaction():
        shelf.index.replace(shelf.db, document, chunks_of(document, ["a"]), spilled(tmp_path / "v", list(row)))
    (text,) = shelf.db.execute("SELECT embedding::text FROM background_vectors_1").fetchone() or ("",)
    assert array("f", [float(part) for part in str(text)[1:-1].split(",")]) == row


def test_many_children_make_the_table_once(shelf: Shelf, url: str, tmp_path: Path) -> None:
    """Nobody waits for another in a circle, and nobody fails."""
    documents = [shelf.add(f"{number}.txt") for number in range(6)]
    failures: list[Exception] = []
    start = threading.Barrier(len(documents))

    def run(number: int) -> None:
        chunks = chunks_of(documents[number], ["a", "b"])
        vectors = spilled(tmp_path / str(number), [1.0, number], [number, 1.0], model="new")
        try:
            with psycopg.connect(url) as db:
                start.wait()
                for _ in range(3):
                    with db.transaction():
                        PostgresIndex().replace(db, documents[number], chunks, vectors)
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(documents))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert shelf.count("background_vector_models") == 1
    assert shelf.count("background_vectors_1") == 12


def test_an_extension_that_went_away_and_came_back_has_its_vectors_made_anew(
    shelf: Shelf, server: EmbeddingServer
) -> None:
    document = shelf.add("a.txt")
    shelf.fill(document, ["one"], server.embedder())
    shelf.db.execute("DROP EXTENSION vector CASCADE")
    assert shelf.index.refuses_vectors(shelf.db) is None
    shelf.fill(document, ["one"], server.embedder())
    assert shelf.count("background_vectors_1") == 1


def test_the_extension_may_be_in_a_schema_of_its_own(shelf: Shelf, server: EmbeddingServer) -> None:
    shelf.db.execute("DROP EXTENSION vector")
    shelf.db.execute("CREATE SCHEMA extensions")
    shelf.db.execute("CREATE EXTENSION vector SCHEMA extensions")
    assert shelf.index.refuses_vectors(shelf.db) is None
    shelf.put("a.txt", "one", "two", embedder=server.embedder())
    assert shelf.count("background_vectors_1") == 2
    hits = search(shelf.db, "one", vector=embed_question(server.embedder(), "one"))
    assert hits[0].found_by == ["words", "meaning"]


def test_a_role_that_may_not_make_the_extension_is_told(db: Connection, url: str) -> None:
    role = f"worker_{uuid.uuid4().hex}"
    db.execute(f"CREATE ROLE {role} LOGIN")
    try:
        with psycopg.connect(make_conninfo(url, user=role), autocommit=True) as worker:
            why = PostgresIndex().refuses_vectors(worker)
        assert why == (
            "The extension pgvector is not in the database, and this role may not create it: have CREATE EXTENSION "
            "vector run by one who may."
        )
        db.execute("CREATE EXTENSION vector")  # later, by one who may
        with psycopg.connect(make_conninfo(url, user=role), autocommit=True) as worker:
            assert PostgresIndex().refuses_vectors(worker) is None
    finally:
        db.execute(f"DROP ROLE {role}")


def test_a_version_that_loses_rows_to_filters_is_told(shelf: Shelf) -> None:
    shelf.db.execute("UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")
    assert shelf.index.refuses_vectors(shelf.db) == (
        "The extension pgvector is 0.7.4, vectors need 0.8 or newer: ALTER EXTENSION vector UPDATE."
    )
    for version in ("0.10.0", "1.0", "0.8.0-dev"):
        shelf.db.execute("UPDATE pg_extension SET extversion = %s WHERE extname = 'vector'", [version])
        assert shelf.index.refuses_vectors(shelf.db) is None


@pytest.mark.skipif(programs() is None, reason="no PostgreSQL is installed on this system")
def test_a_server_without_the_extension_has_full_text(tmp_path: Path) -> None:
    """The system's own server, which has no pgvector: the schema is the same, and documents are found by words."""
    with system_server(Path("/tmp") / f"oomph-plain-{uuid.uuid4().hex[:12]}") as url:
        migrate(url)
        with psycopg.connect(url, autocommit=True) as db:
            shelf = Shelf(db, tmp_path)
            if db.execute("SELECT FROM pg_available_extensions WHERE name = 'vector'").fetchone():
                pytest.skip("the server of this system has pgvector")
            assert shelf.index.refuses_vectors(db) == (
                "The extension pgvector is not installed on the database server."
            )
            shelf.put("a.txt", "the analytical engine")
            assert len(columns(shelf)) == 1
