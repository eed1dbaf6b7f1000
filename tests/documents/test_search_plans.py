"""The plans of a search over many chunks: each list comes from its index, and a filter leaves what belongs there."""

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from jobs.documents.pipeline.index import PostgresIndex
from jobs.documents.question import QuestionVector, vector_text
from jobs.documents.search import Hits, search
from jobs.migrate import migrate
from tests.documents.embedding import Connection
from tests.jobs.test_plans import plans_inside, walk

pytestmark = pytest.mark.timeout(300)  # most of it for 20,000 texts on a busy machine

MODEL, DIMENSIONS = "m", 32
DOCUMENTS, CHUNKS = 200, 100  # 20,000 chunks
OF_SMALL = 30  # chunks of a collection that is lost among them
VECTORS, BY_MEANING, BY_WORDS = (
    "background_vectors_1",
    "background_vectors_1_embedding",
    "background_document_chunks_search",
)

FILL = f"""
    WITH document AS (
        INSERT INTO background_documents (filename, sha256, size, collection, ready_at)
        SELECT n || '.txt', lpad(to_hex(n), 64, '0'), 1, CASE WHEN n = 0 THEN 'small' ELSE 'c' || n % 4 END, now()
          FROM generate_series(0, {DOCUMENTS}) AS n RETURNING id, filename)
    INSERT INTO background_document_chunks (document_id, position, text)
    SELECT id, n, filename || CASE WHEN n % 50 = 7 THEN ' zebra ' ELSE ' engine ' END
           || (SELECT string_agg(md5(id::text || n || m), ' ') FROM generate_series(1, 15) AS m) -- as wide as real ones
      FROM document, generate_series(1, CASE WHEN filename = '0.txt' THEN {OF_SMALL} ELSE {CHUNKS} END) AS n
"""


@pytest.fixture(scope="module")
def vectors() -> list[list[float]]:
    chance = random.Random(4)
    return [[chance.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(DOCUMENTS * CHUNKS + OF_SMALL)]


@pytest.fixture(scope="module")
def db(server: str, vectors: Sequence[Sequence[float]]) -> Iterator[Connection]:
    """A database of its own, filled once for all these tests, which only read."""
    name = f"plans_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            migrate(make_conninfo(server, dbname=name))
            with psycopg.connect(make_conninfo(server, dbname=name), autocommit=True) as opened:
                if why := PostgresIndex().refuses_vectors(opened):
                    pytest.skip(why)
                fill(opened, vectors)
                yield opened
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def fill(db: Connection, vectors: Sequence[Sequence[float]]) -> None:
    db.execute("SELECT background_make_vector_table(%s, %s)", [MODEL, DIMENSIONS])
    db.execute(FILL)
    # One index over all is built in seconds; row by row it takes a minute.
    (definition,) = db.execute("SELECT pg_get_indexdef(%s::regclass)", [BY_MEANING]).fetchone() or ("",)
    db.execute(f"DROP INDEX {BY_MEANING}")
    chunks = db.execute("SELECT id, document_id FROM background_document_chunks").fetchall()
    with db.cursor() as cursor, cursor.copy(f"COPY {VECTORS} FROM STDIN") as copy:
        for (chunk_id, document_id), vector in zip(chunks, vectors, strict=True):
            copy.write_row((chunk_id, document_id, vector_text(vector)))
    db.execute(str(definition))
    db.execute("ANALYZE")


def nodes_of(plans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [node for shown in plans for node in walk(shown["Plan"])]


def ask(db: psycopg.Connection[Any], words: str, vector: Sequence[float], **filters: Any) -> Hits:
    hits: Hits = search(db, words, vector=QuestionVector(MODEL, vector), **filters)
    return hits


def test_both_lists_come_from_their_indexes(db: Connection, vectors: Sequence[Sequence[float]]) -> None:
    with plans_inside(db) as plans:
        hits = ask(db, "zebra", vectors[7])
    assert len(hits) == 10
    assert {tuple(hit.found_by) for hit in hits} >= {("words",), ("meaning",)}
    nodes = nodes_of(plans)
    assert {BY_MEANING, BY_WORDS} <= {node.get("Index Name") for node in nodes}
    walked = {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"}
    assert not walked & {VECTORS, "background_document_chunks"}
    (nearest,) = (node for node in nodes if node.get("Index Name") == BY_MEANING)
    assert nearest["Actual Rows"] == 100
    assert [shown for shown in plans if "JIT" in shown] == []


def test_the_nearest_by_the_index_are_the_nearest(db: Connection, vectors: Sequence[Sequence[float]]) -> None:
    same = 0
    for vector in vectors[:: len(vectors) // 20]:
        question = vector_text([value + 0.3 for value in vector])
        asked = [MODEL, DIMENSIONS, question, None, 10]
        found = db.execute("SELECT chunk_id FROM background_nearest_chunks(%s, %s, %s, %s, %s)", asked).fetchall()
        exact = db.execute(
            f"SELECT chunk_id FROM {VECTORS} ORDER BY (embedding <=> %s::vector) + 0 LIMIT 10", [question]
        ).fetchall()
        same += len(set(found) & set(exact))
    assert same >= 0.8 * 21 * 10


@pytest.mark.parametrize(("collection", "least"), [("small", OF_SMALL), ("c1", 100), ("none", 0)])
def test_a_filter_leaves_all_that_belongs_there(
    db: Connection, vectors: Sequence[Sequence[float]], collection: str, least: int
) -> None:
    """Of the nearest forty, which an index gives first, none may be in a small collection."""
    for vector in (vectors[100], [-value for value in vectors[100]]):
        hits = ask(db, "nothing", vector, collection=collection, limit=100)
        assert len(hits) == least
        assert {hit.filename for hit in hits} == ({"0.txt"} if collection == "small" else {h.filename for h in hits})


def test_a_search_takes_milliseconds(db: Connection, vectors: Sequence[Sequence[float]]) -> None:
    ask(db, "zebra", vectors[1])
    started = time.monotonic()
    for vector in vectors[:20]:
        ask(db, "zebra", vector)
    assert (time.monotonic() - started) / 20 < 0.5
