"""Which embedder the settings name, what it is given of a chunk, and a local model."""

import subprocess
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest

from jobs.documents.errors import EmbeddingRefused
from jobs.documents.pipeline.chunk import Chunk
from jobs.documents.pipeline.embed import embed_chunks, embed_question, embedder_from_environment
from jobs.documents.pipeline.embed_http import HttpEmbedder
from jobs.documents.pipeline.embedder import Vector
from jobs.documents.pipeline.vectors import VectorWriter
from tests.documents.embedding import chunks_of

DOCUMENT = UUID(int=1)
HTTP = {"EMBEDDING_URL": "http://127.0.0.1:1/v1", "EMBEDDING_MODEL": "m"}


@dataclass
class Counting:
    """An embedder that keeps what it was asked."""

    name: str = "lengths"
    batch_size: int = 3
    asked: list[list[str]] = field(default_factory=list)

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.asked.append(list(texts))
        return [[float(len(text))] for text in texts]


def test_without_settings_nothing_is_embedded() -> None:
    assert embedder_from_environment({}) is None
    assert embedder_from_environment({"EMBEDDING_URL": "", "EMBEDDING_MODEL": "", "EMBEDDING_API_KEY": "k"}) is None


def test_a_url_and_a_model_are_an_endpoint() -> None:
    embedder = embedder_from_environment({**HTTP, "EMBEDDING_BATCH_SIZE": "7", "EMBEDDING_API_KEY": "from a file\n"})
    assert isinstance(embedder, HttpEmbedder)
    assert (embedder.name, embedder.batch_size) == ("m", 7)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"EMBEDDING_MODEL": "m"}, "EMBEDDING_MODEL is set without EMBEDDING_URL"),
        ({"EMBEDDING_URL": "http://h/v1"}, "EMBEDDING_URL needs EMBEDDING_MODEL"),
        ({**HTTP, "EMBEDDING_BATCH_SIZE": "0"}, "EMBEDDING_BATCH_SIZE=0: a whole number from 1 to 2,048"),
        ({**HTTP, "EMBEDDING_BATCH_SIZE": "many"}, "EMBEDDING_BATCH_SIZE=many"),
        ({**HTTP, "EMBEDDING_TIMEOUT_SECONDS": "601"}, "EMBEDDING_TIMEOUT_SECONDS=601: a whole number from 1 to 600"),
        ({**HTTP, "EMBEDDING_DIMENSIONS": "4001"}, "EMBEDDING_DIMENSIONS=4001: a whole number from 1 to 4,000"),
        ({"EMBEDDING_URL": "file:///x", "EMBEDDING_DIMENSIONS": "8"}, "a local model has the dimensions it has"),
        ({"EMBEDDING_URL": "file:///no/such%20folder"}, "names the folder /no/such folder, which does not exist"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(EmbeddingRefused, match=sentence):
        embedder_from_environment(settings)


def test_without_an_embedder_or_words_a_question_has_no_vector() -> None:
    assert embed_question(embedder_from_environment({}), "words") is None
    assert embed_question(Counting(), " ") is None


def test_chunks_are_embedded_in_order_and_a_batch_at_a_time() -> None:
    embedder = Counting()
    stream = embed_chunks(embedder, iter(chunks_of(DOCUMENT, ["a", "bb", "ccc", "dddd"])))
    assert next(stream) == [1.0]
    assert embedder.asked == [["a", "bb", "ccc"]]
    assert list(stream) == [[2.0], [3.0], [4.0]]
    assert embedder.asked == [["a", "bb", "ccc"], ["dddd"]]


def test_a_chunk_is_embedded_under_its_headings() -> None:
    embedder = Counting()
    list(embed_chunks(embedder, [Chunk(DOCUMENT, 0, None, "Engines > Steam", "It burns coal.")]))
    assert embedder.asked == [["Engines > Steam\n\nIt burns coal."]]


def test_vectors_are_spilled_to_disk_and_read_back_as_often_as_wanted(tmp_path: Path) -> None:
    with VectorWriter(tmp_path / "v", "m") as writer:
        writer.write([0.5, -1.0])
        writer.write(array("f", [2.0, 3.0]))
        with pytest.raises(ValueError, match="a vector of 1 dimensions after 2 of 2"):
            writer.write([1.0])
        vectors = writer.finished()
    assert (vectors.model, vectors.dimensions, len(vectors)) == ("m", 2, 2)
    assert [list(vector) for vector in vectors] == [list(vector) for vector in vectors] == [[0.5, -1.0], [2.0, 3.0]]
    assert (tmp_path / "v").stat().st_size == 16


def local_model(folder: Path) -> Path:
    """A small model as model2vec stores them: each word has a direction, and words of one meaning share theirs."""
    import numpy as np
    from model2vec import StaticModel
    from tokenizers import Tokenizer, models, pre_tokenizers

    meanings = {"[UNK]": 0, "car": 1, "automobile": 1, "cat": 2, "feline": 2, "drives": 3, "sleeps": 4}
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(meanings)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vectors = np.eye(5, dtype=np.float32)[list(meanings.values())]
    StaticModel(vectors, tokenizer, normalize=True).save_pretrained(folder)
    return folder


def test_a_local_model_brings_words_of_one_meaning_together(tmp_path: Path) -> None:
    folder = local_model(tmp_path / "tiny model")
    embedder = embedder_from_environment({"EMBEDDING_URL": folder.as_uri()})
    assert embedder is not None
    assert embedder.name == "tiny model"
    question = embed_question(embedder, "an automobile")
    car, cat, nothing = embedder.embed(["the car drives " * 400, "the cat sleeps", ""])
    assert similarity(question.values, car) > similarity(question.values, cat) + 0.1
    assert list(nothing) == [0.0] * 5


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingRefused, match="holds no model that model2vec reads"):
        embedder_from_environment({"EMBEDDING_URL": tmp_path.as_uri()})
    local_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(EmbeddingRefused, match="holds no model that model2vec reads"):
        embedder_from_environment({"EMBEDDING_URL": tmp_path.as_uri()})


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_who_searches_loads_neither_the_parser_nor_the_object_store() -> None:
    look = (
        "import sys, jobs.documents.pipeline.embed_http; loaded = {name.partition('.')[0] for name in sys.modules}; "
        "print(loaded & {'kreuzberg', 'obstore', 'psycopg', 'numpy', 'asyncio'})"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "set()\n"
