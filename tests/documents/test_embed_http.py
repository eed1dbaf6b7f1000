"""The embedder over HTTP, against a real server that limits, fails, stalls and answers nonsense."""

import logging
import time
from array import array
from collections.abc import Iterator
from typing import Any

import pytest

from jobs.documents.errors import EmbeddingError, EmbeddingRefused
from jobs.documents.pipeline.embed import embed_question
from jobs.documents.pipeline.embed_http import MAX_BATCH_CHARS, RETRYING, HttpEmbedder, batches
from tests.documents.embedding import EmbeddingServer, embedding_server
from tests.documents.embedding_server import DIMENSIONS, vector

KEY = "sk-very-secret-4711"
EMPTY = '{"data": [{"index": 0, "embedding": []}, {"index": 1, "embedding": []}]}'


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as running:
        yield running


def asked(server: EmbeddingServer) -> list[list[str]]:
    return [request["body"]["input"] for request in server.seen()]


def test_each_text_gets_its_vector_in_order(server: EmbeddingServer) -> None:
    server.script({"shuffle": True})
    texts = ["the analytical engine", "weaves", "patterns"]
    assert server.embedder().embed(texts) == [array("f", vector(text)) for text in texts]
    (request,) = server.seen()
    assert request["body"] == {"model": "counts", "input": texts}
    assert "Authorization" not in request["headers"]


def test_the_key_is_a_bearer_token_and_a_query_stays(server: EmbeddingServer) -> None:
    HttpEmbedder(f"{server.url}/embeddings/?api-version=1", "m", api_key=KEY).embed(["a"])
    (request,) = server.seen()
    assert request["headers"]["Authorization"] == f"Bearer {KEY}"
    assert request["query"] == "/v1/embeddings?api-version=1"


def test_fewer_dimensions_are_asked_for(server: EmbeddingServer) -> None:
    assert len(server.embedder(dimensions=8).embed(["a"])[0]) == 8


def test_no_texts_are_no_request(server: EmbeddingServer) -> None:
    assert server.embedder().embed([]) == []
    assert server.seen() == []


def test_requests_are_bounded_by_texts_and_by_characters(server: EmbeddingServer) -> None:
    texts = [str(number) for number in range(10)]
    assert len(server.embedder(batch_size=4).embed(texts)) == 10
    assert [len(batch) for batch in asked(server)] == [4, 4, 2]
    long = "x" * (MAX_BATCH_CHARS // 2)
    assert [len(batch) for batch in batches([long, long, long, "a", long * 3, "b", "c"], 64)] == [2, 2, 1, 2]
    assert list(batches([], 64)) == []


def test_a_question_becomes_a_vector_of_the_same_model(server: EmbeddingServer) -> None:
    question = embed_question(server.embedder(), "weaving patterns")
    assert (question.model, len(question.values)) == ("counts", DIMENSIONS)


@pytest.mark.parametrize("step", [{"status": status} for status in (408, 429, 500, 502, 503, 504)] + [{"drop": True}])
def test_what_may_pass_is_tried_again(server: EmbeddingServer, step: dict[str, Any]) -> None:
    server.script(step, step)
    assert server.embedder().embed(["a"]) == [array("f", vector("a"))]
    assert asked(server) == [["a"]] * 3


def test_an_answer_that_breaks_off_is_tried_again(server: EmbeddingServer) -> None:
    server.script({"cut": True})
    assert len(server.embedder().embed(["a"])) == 1
    assert len(server.seen()) == 2


def test_a_rate_limit_is_waited_for_as_long_as_it_says(server: EmbeddingServer) -> None:
    server.script({"status": 429, "headers": {"Retry-After": "1"}})
    assert len(server.embedder().embed(["a"])) == 1
    first, second = (request["at"] for request in server.seen())
    assert 1 <= second - first < 10


def test_a_rate_limit_of_an_hour_is_not_waited_out(server: EmbeddingServer) -> None:
    server.script(*[{"status": 429, "headers": {"Retry-After": "3600"}}] * 2)
    retrying = RETRYING.new(total=1)
    retrying.retry_after_max = 1
    started = time.monotonic()
    with pytest.raises(EmbeddingError, match="answered 429"):
        server.embedder(retrying=retrying).embed(["a"])
    assert time.monotonic() - started < 10
    assert RETRYING.retry_after_max <= 60


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_does_not_pass_within_the_attempt_is_a_temporary_failure(server: EmbeddingServer, status: int) -> None:
    server.script(*[{"status": status, "body": '{"error": "the GPU is\\n busy"}'}] * 9)
    with pytest.raises(EmbeddingError, match=rf"/v1/embeddings answered {status}: .*the GPU is"):
        server.embedder().embed(["a"])
    assert len(server.seen()) == 5


def test_a_server_that_stalls_is_a_temporary_failure(server: EmbeddingServer) -> None:
    server.script(*[{"delay": 5}] * 2)
    started = time.monotonic()
    with pytest.raises(EmbeddingError, match=r"/v1/embeddings did not answer: .*timed out"):
        server.embedder(timeout=0.3, retrying=RETRYING.new(total=1, backoff_factor=0)).embed(["a"])
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ({"trickle": 0.1}, "did not end its answer in 1 seconds"),
        ({"endless": True}, "answered more than .* bytes for 1"),
    ],
)
def test_an_answer_that_does_not_end_is_given_up(server: EmbeddingServer, step: dict[str, Any], sentence: str) -> None:
    server.script(step)
    started = time.monotonic()
    with pytest.raises(EmbeddingError, match=sentence):
        server.embedder(timeout=1).embed(["a"])
    assert time.monotonic() - started < 10
    assert len(server.embedder().embed(["a"])) == 1


@pytest.mark.parametrize(("number", "dimensions"), [(1e39, 64), (-1e300, 64), (1e5, 2_500)])
def test_numbers_that_no_vector_holds_are_told(server: EmbeddingServer, number: float, dimensions: int) -> None:
    server.script({"number": number, "dimensions": dimensions})
    with pytest.raises(EmbeddingError, match="numbers that are too large"):
        server.embedder().embed(["a"])


def test_a_server_that_is_not_there_is_a_temporary_failure(unused_tcp_port: int) -> None:
    embedder = HttpEmbedder(f"http://127.0.0.1:{unused_tcp_port}/v1", "m", retrying=RETRYING.new(total=1))
    with pytest.raises(EmbeddingError, match=r"did not answer: .*refused"):
        embedder.embed(["a"])


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ({"status": 401}, "The embedder wants a key, and EMBEDDING_API_KEY is not set"),
        ({"status": 403}, "The embedder wants a key"),
        ({"status": 404}, r"or it knows no model 'counts' \(EMBEDDING_MODEL\)"),
        ({"status": 400, "body": '{"error": "8192 tokens at most"}'}, "does not take what it is asked.*8192 tokens"),
        ({"status": 422}, "does not take what it is asked"),
        ({"status": 307, "headers": {"Location": "/elsewhere"}}, "EMBEDDING_URL must name it directly"),
    ],
)
def test_what_no_attempt_can_mend_is_refused_at_once(
    server: EmbeddingServer, step: dict[str, Any], sentence: str
) -> None:
    server.script(step)
    with pytest.raises(EmbeddingRefused, match=sentence):
        server.embedder().embed(["a"])
    assert len(server.seen()) == 1


def test_a_wrong_path_is_told(server: EmbeddingServer) -> None:
    with pytest.raises(EmbeddingRefused, match="There is no embedder at EMBEDDING_URL"):
        HttpEmbedder(f"{server.root}/v2", "m").embed(["a"])


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ({"vectors": 1}, "answered 3 vectors for 2 texts"),
        ({"status": 200, "body": EMPTY}, "a vector of 0 dimensions"),
        ({"dimensions": 3}, f"a vector of 3 dimensions where those before had {DIMENSIONS}"),
        ({"status": 200, "body": "<html>"}, "answered no embeddings"),
        ({"status": 200, "body": '{"data": [{"index": 0, "embedding": [NaN]}]}'}, "finite"),
        ({"status": 200, "body": '{"object": "list"}'}, "data: Field required"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_is_told(
    server: EmbeddingServer, step: dict[str, Any], sentence: str
) -> None:
    embedder = server.embedder()
    embedder.embed(["before"])
    server.script(step)
    with pytest.raises(EmbeddingError, match=sentence):
        embedder.embed(["a", "b"])


def test_vectors_longer_than_an_index_holds_are_refused(server: EmbeddingServer) -> None:
    server.script({"dimensions": 4001})
    with pytest.raises(EmbeddingRefused, match="4001 dimensions, an index holds 4000 at most; ask for fewer"):
        server.embedder().embed(["a"])


def test_a_model_that_cannot_make_shorter_vectors_is_told(server: EmbeddingServer) -> None:
    server.script({"dimensions": 64})
    with pytest.raises(EmbeddingError, match="64 dimensions where EMBEDDING_DIMENSIONS asks for 8"):
        server.embedder(dimensions=8).embed(["a"])


@pytest.mark.parametrize("status", [401, 400, 429, 500])
def test_the_key_is_in_no_error_and_no_log(
    server: EmbeddingServer, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    quoted = "x" * 295 + f" {KEY} is wrong"  # so that the end of what is shown falls into it
    server.script({"drop": True}, *[{"status": status, "body": f"{KEY} {quoted}"}] * 5)
    with pytest.raises((EmbeddingError, EmbeddingRefused)) as caught:
        server.embedder(api_key=KEY).embed(["a"])
    shown = repr(caught.value) + repr(caught.value.__cause__) + caplog.text
    assert "[key]" in shown
    assert KEY[:8] not in shown
    assert caught.value.__cause__ is None


def test_a_key_that_no_header_can_hold_is_refused_without_showing_it() -> None:
    with pytest.raises(EmbeddingRefused, match="EMBEDDING_API_KEY holds characters") as caught:
        HttpEmbedder("http://127.0.0.1/v1", "m", api_key=f"{KEY}\nx")
    assert KEY not in repr(caught.value)


@pytest.mark.parametrize("url", ["localhost:80/v1", "ftp://x/v1", "http://", "http://[x", f"https://u:{KEY}@host/v1"])
def test_a_url_that_is_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(EmbeddingRefused, match="EMBEDDING_URL must read like https://host/v1") as caught:
        HttpEmbedder(url, "m")
    assert KEY not in repr(caught.value)


def test_the_proxy_of_the_environment_is_used(server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's server is asked for another host, so it was asked as a proxy."""
    monkeypatch.setenv("http_proxy", server.root.replace("//", "//user:word@"))
    HttpEmbedder("http://models.invalid/v1", "m").embed(["a"])
    (request,) = server.seen()
    assert request["query"] == "http://models.invalid/v1/embeddings"
    assert request["headers"]["Host"] == "models.invalid"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    HttpEmbedder(server.url, "m").embed(["a"])
    assert server.seen()[1]["query"] == "/v1/embeddings"
