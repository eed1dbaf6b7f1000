"""What tests of embeddings share: the server's process, and documents whose chunks have vectors."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import urllib3

from jobs.documents.pipeline.chunk import Chunk, chunk_id
from jobs.documents.pipeline.embed import embed_chunks
from jobs.documents.pipeline.embed_http import RETRYING, HttpEmbedder
from jobs.documents.pipeline.embedder import Embedder
from jobs.documents.pipeline.index import PostgresIndex
from jobs.documents.pipeline.vectors import VectorFile, VectorWriter

Connection = psycopg.Connection[tuple[Any, ...]]
ROOT = Path(__file__).parents[2]
QUICK = RETRYING.new(backoff_factor=0.01, backoff_jitter=0)


class EmbeddingServer:
    """The process, and what it is told and asked."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"
        self.url = f"{self.root}/v1"

    def embedder(self, model: str = "counts", **settings: Any) -> HttpEmbedder:
        return HttpEmbedder(self.url, model, **{"retrying": QUICK, **settings})

    def script(self, *steps: dict[str, Any]) -> None:
        assert urllib3.request("PUT", f"{self.root}/script", json=steps).status == 200

    def seen(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = urllib3.request("GET", f"{self.root}/seen").json()
        return found


@contextmanager
def embedding_server() -> Iterator[EmbeddingServer]:
    command = [sys.executable, "-m", "tests.documents.embedding_server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield EmbeddingServer(int(process.stdout.readline()))
        finally:
            process.terminate()


def chunks_of(document_id: UUID, texts: Sequence[str]) -> list[Chunk]:
    return [
        Chunk(chunk_id(document_id, position, text), position, position + 1, None, text)
        for position, text in enumerate(texts)
    ]


def vectors_of(embedder: Embedder, chunks: Sequence[Chunk], path: Path) -> VectorFile:
    with VectorWriter(path, embedder.name) as writer:
        for vector in embed_chunks(embedder, chunks):
            writer.write(vector)
        return writer.finished()


class Shelf:
    """Documents in a database, as the pipeline leaves them, without workers."""

    def __init__(self, db: Connection, folder: Path) -> None:
        self.db = db
        self.index = PostgresIndex()
        self._folder = folder
        self._documents = 0

    def add(self, filename: str, *, collection: str = "default", ready: bool = True) -> UUID:
        self._documents += 1
        row = self.db.execute(
            "INSERT INTO background_documents (filename, sha256, size, collection, ready_at) "
            "VALUES (%s, %s, 1, %s, CASE WHEN %s THEN now() END) RETURNING id",
            [filename, f"{self._documents:064x}", collection, ready],
        ).fetchone()
        assert row is not None
        document_id: UUID = row[0]
        return document_id

    def fill(self, document_id: UUID, texts: Sequence[str], embedder: Embedder | None = None) -> list[Chunk]:
        chunks = chunks_of(document_id, texts)
        vectors = vectors_of(embedder, chunks, self._folder / "vectors") if embedder else None
        with self.db.transaction():
            assert self.index.replace(self.db, document_id, iter(chunks), vectors) == len(chunks)
        return chunks

    def put(
        self, filename: str, *texts: str, embedder: Embedder | None = None, collection: str = "default"
    ) -> list[Chunk]:
        return self.fill(self.add(filename, collection=collection), texts, embedder)

    def count(self, table: str) -> int:
        row = self.db.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert row is not None
        count: int = row[0]
        return count
