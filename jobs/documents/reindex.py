"""Make the index of a document anew, under the same id, while the one that it has goes on serving."""

from collections.abc import Iterator
from typing import Any, cast
from uuid import UUID

from jobs.connection import Program, Statement, run
from jobs.documents.errors import DocumentError
from jobs.documents.task import INGEST_DOCUMENT, IngestDocument, Source
from jobs.enqueue import enqueueing
from jobs.sql import statement
from jobs.task import Priority

SETTLED = ("READY", "FAILED")
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


def settled_documents(db: Any, collection: str | None = None, *, page: int = PAGE) -> Iterator[UUID]:
    """All documents that nothing works on, of one collection or of all, `page` a look. `db` is synchronous."""
    after = UUID(int=0)
    while ids := cast("list[UUID]", run(db, _page(after, collection, page))):
        yield from ids
        after = ids[-1]


def _page(after: UUID, collection: str | None, limit: int) -> Program[list[UUID]]:
    rows = yield Statement(statement("settled_documents"), {"after": after, "collection": collection, "limit": limit})
    return [UUID(str(row[0])) for row in rows]


def _reindex(
    document_id: UUID, source: Source, organization_id: str | None, priority: Priority | None
) -> Program[int | None]:
    edition, filename = yield from _nothing_works_on(document_id)
    if source is Source.SNAPSHOT and edition is None:
        raise DocumentError(f"document {document_id} has no snapshot yet: reindex it from its original")
    job_id = yield from enqueueing(
        INGEST_DOCUMENT,
        IngestDocument(document_id=document_id, source=source),
        organization_id=organization_id,
        priority=priority,
    )
    yield Statement(statement("assign_document"), {"document_id": document_id, "filename": filename, "job_id": job_id})
    return job_id


def _nothing_works_on(document_id: UUID) -> Program[tuple[str | None, str]]:
    """Lock the document, so that nothing can begin; its edition and its name."""
    of_it = {"document_id": document_id}
    standing = yield Statement(statement("document_standing"), of_it)
    if standing and standing[0][0] in SETTLED:
        yield Statement(statement("await_document"), of_it)
        if locked := (yield Statement(statement("lock_settled_document"), of_it)):
            return locked[0][1], locked[0][2]
        standing = yield Statement(statement("document_standing"), of_it)
    if not standing:
        raise DocumentError(f"document {document_id} does not exist")
    status, job_id = standing[0][:2]
    raise DocumentError(f"document {document_id} is {status}: job {job_id} works on it already")
