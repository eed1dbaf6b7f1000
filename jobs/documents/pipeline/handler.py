"""The work of `ingest-document`, in its own child: fetch, parse, chunk, write.

Nothing is held while the parser runs: no connection, no lock. Everything becomes visible in one transaction, together
with the job's success; a child that dies at any moment before leaves nothing behind.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from pydantic import BaseModel

from jobs.app import JobContext
from jobs.connection import Row
from jobs.database import connection_parameters
from jobs.documents.originals import Original, Originals
from jobs.documents.pipeline.chunk import Chunk, chunk
from jobs.documents.pipeline.parse import ParsedDocument, parse
from jobs.documents.task import IngestDocument
from jobs.sql import statement
from jobs.task import PermanentError

CONNECT_SECONDS = 10
# A child that is stopped inside its transaction would make the next owner of the document wait for its rows.
IDLE_IN_TRANSACTION = "60s"
LOCK_TIMEOUT = "90s"  # longer than that, so a retry gets through

Connection = psycopg.Connection[tuple[Any, ...]]


class Ingested(BaseModel):
    """The job's result."""

    document_id: UUID
    pages: int | None
    chunks: int


@dataclass(frozen=True, slots=True)
class Document:
    id: UUID
    filename: str
    original: Original


def ingest(payload: IngestDocument, job: JobContext) -> None:
    """Make a document READY. Raises `UnreadableDocument` with a sentence for people; `complete_in` ends the job."""
    with _connected() as db:
        document = _find(db, payload.document_id, job.job_id)
    job.progress(0.05, "fetching")
    path = Path("original").absolute()  # the job's own folder
    path.write_bytes(Originals().load(document.original))
    job.progress(0.1, "parsing")
    parsed = parse(document.filename, path)
    job.progress(0.7, "writing")
    with _connected() as db, db.transaction():
        _write(db, document, parsed, job)


@contextmanager
def _connected() -> Iterator[Connection]:
    url = os.environ.get("DATABASE_URL", "")
    with psycopg.connect(url, autocommit=True, **connection_parameters("oomph ingest", CONNECT_SECONDS)) as db:
        yield db


def _find(db: Connection, document_id: UUID, job_id: int) -> Document:
    row = db.execute(statement("find_document"), {"document_id": document_id}).fetchone()
    if row is None:
        raise PermanentError(f"document {document_id} does not exist")
    filename, sha256, size, owner = row
    if owner != job_id:
        raise PermanentError(_superseded(document_id, owner))
    return Document(document_id, filename, Original(sha256, size))


def _write(db: Connection, document: Document, parsed: ParsedDocument, job: JobContext) -> None:
    db.execute(
        "SELECT set_config('idle_in_transaction_session_timeout', %s, true), set_config('lock_timeout', %s, true)",
        [IDLE_IN_TRANSACTION, LOCK_TIMEOUT],
    )
    db.execute(statement("clear_chunks"), {"document_id": document.id})
    chunks = _copy(db, document.id, chunk(document.id, parsed.pages))
    job.complete_in(db, Ingested(document_id=document.id, pages=parsed.page_count, chunks=chunks))
    described: Row | None = db.execute(
        statement("describe_document"),
        {
            "document_id": document.id,
            "job_id": job.job_id,
            "mime_type": parsed.mime_type,
            "title": parsed.title,
            "pages": parsed.page_count,
            "chunks": chunks,
        },
    ).fetchone()
    if described is None:
        raise PermanentError(_superseded(document.id, None))


def _copy(db: Connection, document_id: UUID, chunks: Iterable[Chunk]) -> int:
    copied = 0
    with db.cursor() as cursor, cursor.copy(statement("copy_chunks")) as copy:
        copy.set_types(["uuid", "int4", "int4", "text", "text"])
        for each in chunks:
            copy.write_row((document_id, each.position, each.page, each.heading, each.text))
            copied += 1
    return copied


def _superseded(document_id: UUID, owner: int | None) -> str:
    whom = "another job" if owner is None else f"job {owner}"
    return f"document {document_id} belongs to {whom}; submit its file again to have it read anew"
