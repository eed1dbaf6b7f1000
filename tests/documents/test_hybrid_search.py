"""Search by words and meaning at once, in any collection, on any connection, with and without vectors."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.documents.pipeline.embed import embed_question
from jobs.documents.pipeline.embed_http import HttpEmbedder
from jobs.documents.question import QuestionVector
from jobs.documents.search import Hits, search
from tests.documents.embedding import Connection, EmbeddingServer, Shelf, embedding_server
from tests.jobs.callers import CALLERS, settle


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as running:
        yield running


@pytest.fixture
def embedder(server: EmbeddingServer) -> HttpEmbedder:
    return server.embedder()


@pytest.fixture
def shelf(db: Connection, tmp_path: Path) -> Shelf:
    made = Shelf(db, tmp_path)
    if why := made.index.refuses_vectors(db):
        pytest.skip(why)
    return made


def ask(
    shelf: Shelf, words: str, embedder: HttpEmbedder | None, limit: int = 10, collection: str | None = None
) -> Hits:
    vector = embed_question(embedder, words) if embedder else None
    hits: Hits = search(shelf.db, words, limit=limit, collection=collection, vector=vector)
    return hits


def names(hits: Hits) -> list[str]:
    return [hit.filename for hit in hits]


def test_what_means_the_same_is_found_in_other_words(shelf: Shelf, embedder: HttpEmbedder) -> None:
    shelf.put("car.txt", "the automobile of the physician", embedder=embedder)
    shelf.put("cat.txt", "a feline that sleeps all day long", embedder=embedder)
    assert names(ask(shelf, "car doctor", None)) == []
    hits = ask(shelf, "car doctor", embedder, limit=1)
    assert [(hit.filename, hit.found_by, hit.matches) for hit in hits] == [("car.txt", ["meaning"], [])]
    assert hits[0].snippet == "the automobile of the physician"
    assert hits.is_hybrid
    assert hits.note is None


def test_what_both_ways_find_comes_before_what_one_finds(shelf: Shelf, embedder: HttpEmbedder) -> None:
    shelf.put("both.txt", "a car in the street", embedder=embedder)
    shelf.put("meaning.txt", "an automobile in the street", embedder=embedder)
    shelf.put("words.txt", "a car " + "among very many other things " * 30)
    hits = ask(shelf, "car", embedder)
    assert names(hits)[0] == "both.txt"
    assert {hit.filename: hit.found_by for hit in hits} == {
        "both.txt": ["words", "meaning"],
        "meaning.txt": ["meaning"],
        "words.txt": ["words"],
    }


def test_the_rank_is_that_of_reciprocal_rank_fusion(shelf: Shelf, embedder: HttpEmbedder) -> None:
    shelf.put("first.txt", "car", embedder=embedder)
    shelf.put("second.txt", "car street", embedder=embedder)
    assert [hit.rank for hit in ask(shelf, "car", embedder)] == pytest.approx([1 / 61 + 1 / 61, 1 / 62 + 1 / 62])


def test_a_search_without_a_vector_says_that_it_was_by_words_only(shelf: Shelf, embedder: HttpEmbedder) -> None:
    shelf.put("a.txt", "a car", embedder=embedder)
    hits = ask(shelf, "car", None)
    assert [(hit.filename, hit.found_by) for hit in hits] == [("a.txt", ["words"])]
    assert not hits.is_hybrid
    assert hits.note == "Found by words only: no vector of the question was given."
    assert ask(shelf, "nowhere", None).note == hits.note


def test_a_model_that_embedded_nothing_is_told_and_words_are_found(shelf: Shelf, server: EmbeddingServer) -> None:
    shelf.put("a.txt", "a car", embedder=server.embedder("old"))
    for changed in (server.embedder("new"), server.embedder("old", dimensions=8)):
        hits = ask(shelf, "car", changed)
        assert names(hits) == ["a.txt"]
        assert hits.note is not None
        assert "no document has vectors of the model" in hits.note
    shelf.put("b.txt", "an automobile", embedder=server.embedder("new"))
    hits = ask(shelf, "car", server.embedder("new"))
    assert (sorted(names(hits)), hits.note) == (["a.txt", "b.txt"], None)


def test_vectors_of_a_server_without_the_extension_are_told(shelf: Shelf, embedder: HttpEmbedder) -> None:
    shelf.put("a.txt", "a car", embedder=embedder)
    shelf.db.execute("DROP EXTENSION vector CASCADE")
    hits = ask(shelf, "car", embedder)
    assert names(hits) == ["a.txt"]
    assert not hits.is_hybrid


def test_a_collection_leaves_out_every_other(shelf: Shelf, embedder: HttpEmbedder) -> None:
    for collection in ("red", "blue"):
        shelf.put(f"{collection}.txt", "a car", embedder=embedder, collection=collection)
    for asked in (embedder, None):
        assert sorted(names(ask(shelf, "car", asked))) == ["blue.txt", "red.txt"]
        assert names(ask(shelf, "car", asked, collection="blue")) == ["blue.txt"]
        assert names(ask(shelf, "car", asked, collection="none")) == []


def test_only_documents_whose_index_is_complete_are_found(shelf: Shelf, embedder: HttpEmbedder) -> None:
    document = shelf.add("a.txt", ready=False)
    shelf.fill(document, ["a car"], embedder)
    assert ask(shelf, "car", embedder) == []
    shelf.db.execute("UPDATE background_documents SET ready_at = now()")
    assert names(ask(shelf, "car", embedder)) == ["a.txt"]


def test_a_document_that_is_read_anew_is_found_in_its_old_index(shelf: Shelf, embedder: HttpEmbedder) -> None:
    shelf.put("a.txt", "a car", embedder=embedder)
    for status in ("PENDING", "PARSING", "CHUNKING", "EMBEDDING", "INDEXING"):
        shelf.db.execute("UPDATE background_documents SET status = %s", [status])
        assert names(ask(shelf, "car", embedder)) == ["a.txt"]


def test_a_query_of_which_no_word_is_left_is_asked_by_meaning(shelf: Shelf, embedder: HttpEmbedder) -> None:
    shelf.put("a.txt", "... a car", embedder=embedder)
    (hit,) = ask(shelf, "...", embedder)
    assert hit.found_by == ["meaning"]


def test_the_limit_holds_for_both_lists(shelf: Shelf, embedder: HttpEmbedder) -> None:
    shelf.put("a.txt", *[f"car {number}" for number in range(150)], embedder=embedder)
    assert len(ask(shelf, "car", embedder, limit=7)) == 7
    assert len(ask(shelf, "car", embedder, limit=140)) == 140


def test_a_text_without_a_direction_is_found_by_its_words(shelf: Shelf, server: EmbeddingServer) -> None:
    """Its vector is all zeros, which is at no angle to anything."""
    document = shelf.add("a.txt")
    server.script({"status": 200, "body": '{"data": [{"index": 0, "embedding": [0, 0]}]}'})
    shelf.fill(document, ["car"], server.embedder("zero"))
    hits: Hits = search(shelf.db, "car", vector=QuestionVector("zero", [0.0, 1.0]))
    assert [hit.found_by for hit in hits] == [["words"]]


@pytest.mark.parametrize("kind", sorted(CALLERS))
async def test_a_service_asks_both_ways_on_the_connection_it_has(
    shelf: Shelf, embedder: HttpEmbedder, url: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # this test may block its own loop
    shelf.put("a.txt", "an automobile", embedder=embedder)
    question = embed_question(embedder, "car")
    async with CALLERS[kind](url) as held:
        hits = await settle(search(held.db, "car", vector=question, collection="default"))
        assert (names(hits), hits.is_hybrid) == (["a.txt"], True)
        hits = await settle(search(held.db, "car"))
        assert (names(hits), hits.is_hybrid) == ([], False)
        await settle(held.rollback())


def test_settings_of_the_callers_transaction_stay_as_they_were(shelf: Shelf, embedder: HttpEmbedder) -> None:
    shelf.put("a.txt", "a car", embedder=embedder)
    with shelf.db.transaction():
        shelf.db.execute("SET LOCAL hnsw.ef_search = 77")
        ask(shelf, "car", embedder)
        shown = [shelf.db.execute(f"SHOW hnsw.{name}").fetchone() for name in ("ef_search", "iterative_scan")]
    assert shown == [("77",), ("off",)]
