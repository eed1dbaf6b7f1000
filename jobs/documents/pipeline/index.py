"""Where chunks and their vectors are found: in PostgreSQL, as full text and, with pgvector, by meaning."""

from collections.abc import Iterable
from typing import Any, Protocol
from uuid import UUID

import psycopg

from jobs.documents.pipeline.chunk import Chunk
from jobs.documents.pipeline.vectors import VectorFile

Connection = psycopg.Connection[tuple[Any, ...]]


class Index(Protocol):
    """What search looks through. Its methods write in the caller's transaction and never commit."""

    def refuses_vectors(self, db: Connection) -> str | None:
        """Why this index takes no vectors, in a sentence; None where it does. Asked before anything is embedded."""
        ...

    def replace(self, db: Connection, document_id: UUID, chunks: Iterable[Chunk], vectors: VectorFile | None) -> int:
        """Put these chunks in the place of all that the document has; how many they are.

        Both streams are read once, one row at a time. Raises `ValueError` where there are not as many vectors as
        chunks.
        """
        ...

    def remove(self, db: Connection, document_id: UUID) -> None:
        """Take the document out of every search."""
        ...
