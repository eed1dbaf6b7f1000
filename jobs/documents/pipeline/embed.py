"""From texts to vectors: an OpenAI-compatible endpoint, a local model, or nothing.

    EMBEDDING_URL              such as http://host:8080/v1 (what stands before /embeddings), or file:///folder of a
                               local model; without it, search is full text only
    EMBEDDING_MODEL            the model's name at the endpoint; of a local one any, by default its folder's
    EMBEDDING_API_KEY          sent as a bearer token
    EMBEDDING_DIMENSIONS       asked of a model that can make shorter vectors
    EMBEDDING_BATCH_SIZE       texts in one request, 64 by default
    EMBEDDING_TIMEOUT_SECONDS  for one answer, 60 by default

Vectors of two models cannot be compared, so each is stored under the name of its model. The service that searches needs
the same settings as the worker, and the key reaches neither an error nor a log.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jobs.documents.errors import EmbeddingRefused
from jobs.documents.pipeline.chunk import Chunk
from jobs.documents.pipeline.embedder import BATCH_SIZE, MAX_DIMENSIONS, RETRIES, TIMEOUT_SECONDS, Embedder, Vector
from jobs.documents.question import QuestionVector
from jobs.extras import how_to_install

MAX_BATCH_SIZE = 2_048  # what the OpenAI API takes
MAX_TIMEOUT_SECONDS = 600
SCHEMES = ("http://", "https://", "file:")
NUMBERS = {  # and the most that each may be
    "EMBEDDING_DIMENSIONS": MAX_DIMENSIONS,
    "EMBEDDING_BATCH_SIZE": MAX_BATCH_SIZE,
    "EMBEDDING_TIMEOUT_SECONDS": MAX_TIMEOUT_SECONDS,
}


def embedder_from_environment(
    environment: Mapping[str, str] = os.environ, *, retries: int = RETRIES
) -> Embedder | None:
    """The embedder that the settings name; None where they name none.

    `retries` is how often a request is sent again: 4 suit a job, which may wait; a person who searches may rather not.
    Raises `EmbeddingRefused` for settings that cannot be meant, and where the library they need is not installed.
    """
    for problem in problems(environment):
        raise EmbeddingRefused(problem)
    url = environment.get("EMBEDDING_URL", "")
    model = environment.get("EMBEDDING_MODEL", "")
    if not url:
        return None
    batch_size = _number(environment, "EMBEDDING_BATCH_SIZE", BATCH_SIZE)
    if _is_local(url):
        return _local(_folder(url), model, batch_size)
    try:
        from jobs.documents.pipeline.embed_http import RETRYING, HttpEmbedder
    except ImportError as error:
        raise EmbeddingRefused(f"EMBEDDING_URL needs {error.name}: {how_to_install('documents')}.") from error
    return HttpEmbedder(
        url,
        model,
        api_key=environment.get("EMBEDDING_API_KEY", "").strip() or None,
        dimensions=_number(environment, "EMBEDDING_DIMENSIONS", 0) or None,
        batch_size=batch_size,
        timeout=_number(environment, "EMBEDDING_TIMEOUT_SECONDS", TIMEOUT_SECONDS),
        retrying=RETRYING.new(total=retries),
    )


def problems(environment: Mapping[str, str]) -> Iterator[str]:
    """What of the settings cannot be meant, a sentence each, without loading or asking a model."""
    url = environment.get("EMBEDDING_URL", "")
    model = environment.get("EMBEDDING_MODEL", "")
    if _is_local(url) and (dimensions := environment.get("EMBEDDING_DIMENSIONS")):
        yield f"EMBEDDING_DIMENSIONS={dimensions}: a local model has the dimensions it has."
    if model and not url:
        yield "EMBEDDING_MODEL is set without EMBEDDING_URL; set both, or neither."
    if url and not url.startswith(SCHEMES):
        yield "EMBEDDING_URL is no address of a model, such as http://host:8080/v1 or file:///folder."
    elif url and not _is_local(url) and not model:
        yield "EMBEDDING_URL needs EMBEDDING_MODEL, the name of the model there."
    elif _is_local(url) and not _folder(url).is_dir():
        yield f"EMBEDDING_URL names the folder {_folder(url)}, which does not exist on this host."
    for name, most in NUMBERS.items():
        given = environment.get(name, "")
        if given and not (given.isascii() and given.isdigit() and 1 <= int(given) <= most):
            yield f"{name}={given}: a whole number from 1 to {most:,}."


def embed_chunks(embedder: Embedder, chunks: Iterable[Chunk]) -> Iterator[Vector]:
    """The vector of each chunk, in their order. Holds one batch of them."""
    texts = map(text_of, chunks)
    while batch := list(islice(texts, embedder.batch_size)):
        yield from embedder.embed(batch)


def text_of(chunk: Chunk) -> str:
    """What is embedded of a chunk: under the path of its headings, which often names what the text is about."""
    return f"{chunk.heading}\n\n{chunk.text}" if chunk.heading else chunk.text


def embed_question(embedder: Embedder | None, words: str) -> QuestionVector | None:
    """What `search` takes to find by meaning; None, by words only, without an embedder or words.

    Blocks: a service on an event loop calls it in a thread. Raises `EmbeddingError` and `EmbeddingRefused`.
    """
    if embedder is None or not words.strip():
        return None
    (vector,) = embedder.embed([words])
    return QuestionVector(embedder.name, vector)


def _local(folder: Path, model: str, batch_size: int) -> Embedder:
    try:
        from jobs.documents.pipeline.embed_local import LocalEmbedder
    except ImportError as error:
        raise EmbeddingRefused(f"A local model needs {error.name}: {how_to_install('embeddings')}.") from error
    return LocalEmbedder(folder, model or folder.name, batch_size=batch_size)


def _folder(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _is_local(url: str) -> bool:
    return url.startswith("file:")


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    return int(environment.get(name) or default)
