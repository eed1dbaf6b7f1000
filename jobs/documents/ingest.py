"""Submit a document: its row and its job, in the transaction of whoever submits it."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobs.connection import Program, Statement, run
from jobs.documents.task import INGEST_DOCUMENT, IngestDocument
from jobs.enqueue import enqueueing
from jobs.sql import statement
from jobs.task import Priority

if TYPE_CHECKING:
    from jobs.documents.originals import Original

MAX_NAME_CHARS = 255
_TRIES = 3  # a document can be deleted between finding and locking it, but not again and again


@dataclass(frozen=True, slots=True)
class Submission:
    """What became of a submitted file.

    `status` is the document's after the call. `is_new` tells whether this call made the document, `is_queued` whether
    it made a job: not so where the same content is READY or on its way.
    """

    document_id: UUID
    job_id: int | None
    status: str
    is_new: bool
    is_queued: bool


def submit(
    db: Any,
    original: "Original",
    filename: str,
    *,
    organization_id: str | None = None,
    priority: Priority | None = None,
) -> Any:
    """Write a document and its job in the transaction that `db` has open. Await it where `db` is asynchronous.

    `original` comes from `Originals.save`, which stores the content first. The same content twice is one document,
    under the name it came with first; one that FAILED gets a new job and the new name. Returns a `Submission`. Never
    commits.
    """
    return run(db, _submit(original, base_name(filename), organization_id, priority))


def base_name(filename: str) -> str:
    """The last part of a path of any system, printable, at most 255 characters with its extension kept."""
    name = re.split(r"[/\\]", filename.strip().rstrip("/\\"))[-1]
    name = name.encode("utf-8", "replace").decode("utf-8")
    name = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name).strip()
    if name in ("", ".", ".."):
        return "unnamed"
    if len(name) <= MAX_NAME_CHARS:
        return name
    stem, dot, extension = name.rpartition(".")
    if dot and len(extension) <= 20:
        return f"{stem[: MAX_NAME_CHARS - len(extension) - 1]}.{extension}"
    return name[:MAX_NAME_CHARS]


def _submit(
    original: "Original", filename: str, organization_id: str | None, priority: Priority | None
) -> Program[Submission]:
    for _ in range(_TRIES):
        made = yield Statement(
            statement("insert_document"),
            {"filename": filename, "sha256": original.sha256, "size": original.size},
        )
        if made:
            return (yield from _give_job(made[0][0], filename, organization_id, priority, is_new=True))
        found = yield Statement(statement("lock_document"), {"sha256": original.sha256})
        if found:
            document_id, status, job_id = found[0]
            # The lock waits for whoever is ending the job, so FAILED means that nothing works on it any more.
            if status == "FAILED":
                return (yield from _give_job(document_id, filename, organization_id, priority, is_new=False))
            return Submission(_uuid(document_id), job_id, status, is_new=False, is_queued=False)
    raise RuntimeError(f"the document {original.sha256} is being deleted again and again while it is submitted")


def _give_job(
    document_id: Any, filename: str, organization_id: str | None, priority: Priority | None, *, is_new: bool
) -> Program[Submission]:
    job_id = yield from enqueueing(
        INGEST_DOCUMENT,
        IngestDocument(document_id=_uuid(document_id)),
        organization_id=organization_id,
        priority=priority,
    )
    yield Statement(
        statement("assign_document"), {"document_id": _uuid(document_id), "filename": filename, "job_id": job_id}
    )
    return Submission(_uuid(document_id), job_id, "PENDING", is_new=is_new, is_queued=True)


def _uuid(value: Any) -> UUID:
    return UUID(str(value))  # asyncpg has a UUID class of its own
