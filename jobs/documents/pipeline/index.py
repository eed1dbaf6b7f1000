"""Where chunks and their vectors are found: in PostgreSQL, as full text and, with pgvector, by meaning."""

from collections.abc import Iterable
from typing import Any, Protocol
from uuid import UUID

import psycopg
from psycopg import sql

from jobs.documents.pipeline.chunk import Chunk
from jobs.documents.pipeline.vectors import VectorFile
from jobs.documents.question import vector_text
from jobs.sql import statement

Connection = psycopg.Connection[tuple[Any, ...]]

_ID_BYTES = 16


class Index(Protocol):
    """What search looks through. It writes in the caller's transaction and never commits."""

    def refuses_vectors(self, db: Connection) -> str | None:
        """Why this index takes no vectors, in a sentence; None where it does. Asked before anything is embedded."""
        ...

    def replace(self, db: Connection, document_id: UUID, chunks: Iterable[Chunk], vectors: VectorFile | None) -> int:
        """Put these chunks in the place of all that the document has; how many they are.

        To be called first in its transaction. Both are read once, one row at a time. Raises `ValueError` where there
        are not as many vectors as chunks.
        """
        ...

    def remove(self, db: Connection, document_id: UUID) -> None:
        """Take the document out of every search."""
        ...


class PostgresIndex:
    """The tables that `jobs.documents.search` reads."""

    def refuses_vectors(self, db: Connection) -> str | None:
        row = db.execute(statement("refuses_vectors")).fetchone()
        assert row is not None
        why: str | None = row[0]
        return why

    def replace(self, db: Connection, document_id: UUID, chunks: Iterable[Chunk], vectors: VectorFile | None) -> int:
        table = _table_for(db, vectors) if vectors else None  # of none, the dimensions are not known
        self.remove(db, document_id)
        ids = _copy_chunks(db, document_id, chunks)
        count = len(ids) // _ID_BYTES
        if vectors is not None and vectors.count != count:
            raise ValueError(f"{vectors.count} vectors for {count} chunks of document {document_id}")
        if vectors and table:
            _copy_vectors(db, table, document_id, ids, vectors)
        return count

    def remove(self, db: Connection, document_id: UUID) -> None:
        db.execute(statement("clear_chunks"), {"document_id": document_id})


def _table_for(db: Connection, vectors: VectorFile) -> str:
    row = db.execute(
        statement("make_vector_table"), {"model": vectors.model, "dimensions": vectors.dimensions}
    ).fetchone()
    assert row is not None
    table: str = row[0]
    return table


def _copy_chunks(db: Connection, document_id: UUID, chunks: Iterable[Chunk]) -> bytearray:
    ids = bytearray()  # as bytes: of a long document they would be many objects
    with db.cursor() as cursor, cursor.copy(statement("copy_chunks")) as copy:
        copy.set_types(["uuid", "uuid", "int4", "int4", "text", "text"])
        for chunk in chunks:
            copy.write_row((chunk.id, document_id, chunk.position, chunk.page, chunk.heading, chunk.text))
            ids += chunk.id.bytes
    return ids


def _copy_vectors(db: Connection, table: str, document_id: UUID, ids: bytearray, vectors: VectorFile) -> None:
    into = sql.SQL(statement("copy_vectors")).format(table=sql.Identifier(table))
    with db.cursor() as cursor, cursor.copy(into) as copy:
        for place, vector in enumerate(vectors):
            chunk_id = UUID(bytes=bytes(ids[place * _ID_BYTES : (place + 1) * _ID_BYTES]))
            copy.write_row((chunk_id, document_id, vector_text(vector)))
