"""Make the index of a document anew, under the same id, while the one that it has goes on serving."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from jobs.connection import Program, Statement, run
from jobs.documents.errors import DocumentError
from jobs.documents.task import INGEST_DOCUMENT, IngestDocument, Source
from jobs.enqueue import enqueueing
from jobs.sql import statement
from jobs.task import Priority

PAGE = 500  # documents a look, for who walks over all of them


def reindex(
    db: Any,
    document_id: UUID,
    source: Source = Source.PARSE,
    *,
    organization_id: str | None = None,
    priority: Priority | None = None,
) -> Any:
    """Have a document's index made anew, in the transaction that `db` has open. Await it where `db` is asynchronous.

    From its original, or from the snapshot of its last parsing, which is quicker and keeps its chunks: enough for
    another embedding model. Until that is READY, searches find what they found before, also where it comes to nothing.
    Returns the job's id. Never commits.

    Raises `DocumentError` for a document that does not exist, is being worked on, or has no snapshot.
    """
    return run(db, _reindex(document_id, Source(source), organization_id, priority))


def settled_documents(db: Any, collection: str | None = None) -> Iterator[UUID]:
    """All documents that nothing works on, of one collection or of all, a page at a time. `db` is synchronous."""
    after = UUID(int=0)
    while page := run(db, _page(after, collection)):
        yield from page  # type: ignore[misc]
        after = page[-1]  # type: ignore[index]


def _page(after: UUID, collection: str | None) -> Program[list[UUID]]:
    rows = yield Statement(statement("settled_documents"), {"after": after, "collection": collection, "limit": PAGE})
    return [UUID(str(row[0])) for row in rows]


def _reindex(
    document_id: UUID, source: Source, organization_id: str | None, priority: Priority | None
) -> Program[int | None]:
    found = yield Statement(statement("lock_document_by_id"), {"document_id": document_id})
    if not found:
        raise DocumentError(f"document {document_id} does not exist")
    status, job_id, edition, filename = found[0]
    # The lock waits for whoever is ending the job, so these mean that nothing works on it any more.
    if status not in ("READY", "FAILED"):
        raise DocumentError(f"document {document_id} is {status}: job {job_id} works on it already")
    if source is Source.SNAPSHOT and edition is None:
        raise DocumentError(f"document {document_id} has no snapshot yet: reindex it from its original")
    new_job_id = yield from enqueueing(
        INGEST_DOCUMENT,
        IngestDocument(document_id=document_id, source=source),
        organization_id=organization_id,
        priority=priority,
    )
    yield Statement(
        statement("assign_document"), {"document_id": document_id, "filename": filename, "job_id": new_job_id}
    )
    return new_job_id
