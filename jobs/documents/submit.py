"""Submit a document: its file goes to the object store, its row and its job into the transaction of whoever submits it.

The file first: a document whose row is seen has its original. Where the rows cannot be written, the file is removed
again. Where the caller's own transaction is rolled back later, nobody here hears of it; such a file stays, unknown to
any document, until the sweep of the next day.
"""

import logging
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import UUID, uuid4

from jobs.connection import Blocking, Program, Statement, run
from jobs.documents.intake import Intake
from jobs.documents.keys import original_key
from jobs.documents.task import INGEST_DOCUMENT, IngestDocument
from jobs.enqueue import enqueueing
from jobs.sql import statement
from jobs.task import Priority

if TYPE_CHECKING:
    from jobs.documents.objects import Objects

DEFAULT_COLLECTION = "default"
MAX_COLLECTION_CHARS = 100
MAX_NAME_CHARS = 255
log = logging.getLogger("oomph.documents")

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
    filename: str,
    content: bytes | BinaryIO,
    *,
    collection: str = DEFAULT_COLLECTION,
    organization_id: str | None = None,
    priority: Priority | None = None,
    max_bytes: int | None = None,
    objects: "Objects | None" = None,
) -> Any:
    """Store a file, and write its document and its job in the transaction that `db` has open.

    Await it where `db` is asynchronous; files and the store are then used in a thread. `content` is the file's bytes,
    or a binary stream that is read to its end from where it stands, a piece at a time. `max_bytes` instead of
    DOCUMENT_MAX_MB; `objects` instead of the store of OBJECT_STORE_URL.

    The same content twice is one document of a collection, under the name it came with first; one that FAILED gets a
    new job and the new name. Returns a `Submission`. Never commits: on a connection in autocommit mode, open a
    transaction around it, or a worker may see the job before the document.

    Raises `UnreadableDocument` for a file that is empty, too large, or of a type that nothing parses, `StoreError`
    where the store does not take it, `ValueError` or `TypeError` for an impossible collection, organization or
    priority, and `TypeError` for content that is text. Nothing is stored then.
    """
    check_collection(collection)
    if not isinstance(content, bytes) and not hasattr(content, "read"):
        raise TypeError(f"content must be bytes or a binary stream, not {type(content).__name__}")
    # Raises here for what no job may have, and not when the document is written.
    enqueueing(
        INGEST_DOCUMENT, IngestDocument(document_id=UUID(int=0)), organization_id=organization_id, priority=priority
    )
    name = base_name(filename)
    intake = Intake(name, content, max_bytes)
    return run(db, _submit(intake, name, collection, organization_id, priority, objects))


def check_collection(collection: str) -> None:
    """Raise `ValueError` for what can be no collection's name."""
    if not 1 <= len(collection) <= MAX_COLLECTION_CHARS or not collection.isprintable():
        raise ValueError(f"collection {collection!r}: 1 to {MAX_COLLECTION_CHARS} printable characters are allowed")


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
    intake: Intake,
    filename: str,
    collection: str,
    organization_id: str | None,
    priority: Priority | None,
    objects: "Objects | None",
) -> Program[Submission]:
    try:
        yield Blocking(intake.take)
        for _ in range(_TRIES):
            wanted = {"collection": collection, "sha256": intake.sha256}
            if found := (yield Statement(statement("document_of_content"), wanted)):
                document_id, status, job_id = UUID(str(found[0][0])), found[0][1], found[0][2]
                if status == "FAILED":
                    if (yield from _lock_failed(document_id)):
                        yield Blocking(partial(_put, objects, original_key(document_id), intake))
                        return (yield from _give_job(document_id, filename, organization_id, priority, is_new=False))
                elif (yield Statement(statement("keep_document"), {"document_id": document_id})):
                    return Submission(document_id, job_id, status, is_new=False, is_queued=False)
                continue
            made = yield from _make(intake, filename, collection, organization_id, priority, objects)
            if made is not None:
                return made
    finally:
        intake.close()
    raise RuntimeError(f"the document {intake.sha256} is being deleted again and again while it is submitted")


def _lock_failed(document_id: UUID) -> Program[bool]:
    """Whether it is FAILED still, and nothing works on it until this transaction ends."""
    of_it = {"document_id": document_id}
    yield Statement(statement("await_document"), of_it)
    locked = yield Statement(statement("lock_settled_document"), of_it)
    return bool(locked) and locked[0][0] == "FAILED"


def _make(
    intake: Intake,
    filename: str,
    collection: str,
    organization_id: str | None,
    priority: Priority | None,
    objects: "Objects | None",
) -> Program[Submission | None]:
    """The first of its content, or None where somebody else has just made that."""
    document_id = uuid4()
    key = original_key(document_id)
    is_stored = False
    try:
        yield Blocking(partial(_put, objects, key, intake))
        is_stored = True
        made = yield Statement(
            statement("insert_document"),
            {
                "id": document_id,
                "filename": filename,
                "sha256": intake.sha256,
                "size": intake.size,
                "mime_type": intake.mime_type,
                "collection": collection,
            },
        )
        if made:
            return (yield from _give_job(document_id, filename, organization_id, priority, is_new=True))
    except GeneratorExit:
        raise
    except BaseException:
        # Also where the store has not said so it may be stored, by a thread that nobody waits for any more.
        yield Blocking(partial(_discard, objects, key, is_stored=is_stored))
        raise
    yield Blocking(partial(_discard, objects, key, is_stored=True))
    return None


def _give_job(
    document_id: UUID, filename: str, organization_id: str | None, priority: Priority | None, *, is_new: bool
) -> Program[Submission]:
    job_id = yield from enqueueing(
        INGEST_DOCUMENT,
        IngestDocument(document_id=document_id),
        organization_id=organization_id,
        priority=priority,
    )
    yield Statement(statement("assign_document"), {"document_id": document_id, "filename": filename, "job_id": job_id})
    return Submission(document_id, job_id, "PENDING", is_new=is_new, is_queued=True)


def _store(objects: "Objects | None") -> "Objects":
    # Here and not above: a service that only declares and enqueues has no use for an object store.
    from jobs.documents.objects import Objects

    return Objects() if objects is None else objects


def _put(objects: "Objects | None", key: str, intake: Intake) -> None:
    _store(objects).put(key, intake.content)


def _discard(objects: "Objects | None", key: str, *, is_stored: bool) -> None:
    from jobs.documents.objects import StoreError

    try:
        _store(objects).remove([key])
    except StoreError as error:  # what is wrong with the submission is the thing to tell
        if is_stored:
            log.warning("%s stays until the next sweep: %s", key, error)
