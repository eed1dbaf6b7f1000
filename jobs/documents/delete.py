"""Take a document away: its index at once, then its assets, its original, and last its row."""

from typing import Any
from uuid import UUID

from jobs.connection import Program, Statement, run
from jobs.documents.errors import DocumentError
from jobs.documents.task import CLEAN_UP_DOCUMENT, CleanUpDocument
from jobs.enqueue import enqueueing
from jobs.sql import statement

DELETED = '{"type": "Cancelled", "message": "cancelled, because its document was deleted", "frames": ""}'


def delete(db: Any, document_id: UUID) -> Any:
    """Delete a document in the transaction that `db` has open. Await it where `db` is asynchronous.

    From the commit on no search finds it, it is not shown any more, and its content may be submitted anew. A job
    `clean-up-document`, written with it, then removes its assets, its original, and at last its row: a store that does
    not answer delays that, and nothing is forgotten. Returns that job's id. Never commits.

    A job that waits is cancelled. Raises `DocumentError` for a document that does not exist, or whose job runs.
    """
    return run(db, _delete(document_id))


def _delete(document_id: UUID) -> Program[int | None]:
    job_id = yield from _nothing_runs(document_id)
    if job_id is not None:
        yield Statement(statement("cancel_job"), {"id": job_id, "error": DELETED})
    yield Statement(statement("clear_chunks"), {"document_id": document_id})
    yield Statement(statement("retire_document"), {"document_id": document_id})
    return (
        yield from enqueueing(CLEAN_UP_DOCUMENT, CleanUpDocument(document_id=document_id), dedupe_key=str(document_id))
    )


def _nothing_runs(document_id: UUID) -> Program[int | None]:
    """Lock the document, so that nothing can begin; the job that waits to, if one does."""
    of_it = {"document_id": document_id}
    standing = yield Statement(statement("document_standing"), of_it)
    if standing and standing[0][2] != "running":
        jobs = yield Statement(statement("lock_job_of_document"), of_it)
        # Claimed meanwhile: it holds the row of its document while it writes the index, and wants its own after that.
        if not any(status == "running" for _, status in jobs):
            yield Statement(statement("lock_document_by_id"), of_it)
        standing = yield Statement(statement("document_standing"), of_it)
        if standing and (standing[0][1], standing[0][2]) not in [*jobs, (None, None)]:
            raise DocumentError(f"document {document_id} is being submitted again just now, as job {standing[0][1]}")
    if not standing:
        raise DocumentError(f"document {document_id} does not exist")
    _, job_id, status = standing[0]
    if status == "running":
        raise DocumentError(f"document {document_id} is being worked on by job {job_id}: cancel that first, or wait")
    return job_id if status == "queued" else None
