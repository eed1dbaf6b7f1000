"""One attempt at one document: what it may write, and where. Every write of it stands behind the job's fence.

Between the stages nothing is held, no connection and no lock. A lease that is lost in the middle is noticed at the next
stage, and at the latest in the transaction that would make the new index visible; what the attempt has stored until
then stands in an edition of its own, which is nobody's.
"""

import logging
from enum import StrEnum
from pathlib import Path
from uuid import UUID

from jobs.app import JobContext
from jobs.context import LeaseLost
from jobs.documents.database import connected
from jobs.documents.errors import DocumentError, UnreadableDocument
from jobs.documents.keys import edition_of, edition_prefix, original_key, snapshot_key
from jobs.documents.objects import ObjectMissing, Objects
from jobs.sql import statement
from jobs.task import PermanentError

CLIENT = "oomph ingest"  # as the server's views show it

log = logging.getLogger("oomph.documents")


class Stage(StrEnum):
    """What a document's status says while its job runs."""

    PARSING = "PARSING"
    CHUNKING = "CHUNKING"
    EMBEDDING = "EMBEDDING"
    INDEXING = "INDEXING"


class Attempt:
    """`document_id`, `filename`, `sha256` and `size` are the document's; `edition` names what this attempt stores.

    `earlier_edition` is what serves now, if anything does.
    """

    def __init__(self, document_id: UUID, job: JobContext) -> None:
        """Raises `PermanentError` for a document that does not exist or belongs to another job.

        `DocumentError`, and a later attempt may do, where it belongs to none yet: submitted without a transaction.
        """
        with connected(CLIENT) as db:
            row = db.execute(statement("find_document"), {"document_id": document_id}).fetchone()
        if row is None:
            raise PermanentError(f"document {document_id} does not exist")
        self.filename, self.sha256, self.size, owner, self.earlier_edition = row
        if owner is None:
            raise DocumentError(f"document {document_id} has not been given job {job.job_id} yet")
        if owner != job.job_id:
            raise PermanentError(
                f"document {document_id} belongs to job {owner}; submit its file again to have it read anew"
            )
        self.document_id = document_id
        self.edition = edition_of(job.job_id, job.claim)
        self.objects = Objects()
        self._job = job

    def enter(self, stage: Stage, fraction: float, note: str) -> None:
        """Write that a stage begins. Raises `LeaseLost` where the job is no longer this attempt's."""
        fence = {"job_id": self._job.job_id, "claim": self._job.claim}
        with connected(CLIENT) as db:
            row = db.execute(
                statement("advance_document"), {"document_id": self.document_id, "stage": stage, **fence}
            ).fetchone()
        if row is None:
            raise LeaseLost(f"document {self.document_id} no longer belongs to claim {self._job.claim}")
        self._job.progress(fraction, note)

    def fetch_original(self, path: Path) -> None:
        """Write the file as it was submitted to `path`.

        Raises `UnreadableDocument` where it is not there or is another one than was stored.
        """
        try:
            found = self.objects.fetch(original_key(self.document_id), path)
        except ObjectMissing:
            raise UnreadableDocument(
                f"The original is not in the object store {self.objects.url}; the worker and whoever submits documents "
                "must use the same OBJECT_STORE_URL."
            ) from None
        if found != self.sha256:
            raise UnreadableDocument(f"The original in the object store {self.objects.url} is not what was submitted.")

    def fetch_snapshot(self, path: Path) -> None:
        """Write the snapshot of what serves now to `path`. Raises `PermanentError` where there is none."""
        if self.earlier_edition is None:
            raise PermanentError(f"document {self.document_id} has no snapshot yet; reindex it from its original")
        try:
            self.objects.fetch(snapshot_key(self.document_id, self.earlier_edition), path)
        except ObjectMissing as error:
            raise PermanentError(f"{error}; reindex the document from its original") from None

    def abandon(self) -> None:
        """Remove what this attempt, which can no longer succeed, has stored. Never raises: the sweep does it again."""
        prefix = edition_prefix(self.document_id, self.edition)
        try:
            self.objects.remove([each.key for each in self.objects.below(prefix)])
        except Exception as error:  # noqa: BLE001  (the attempt's own error is the one to tell)
            log.warning("what was stored below %s is left to the sweep: %s", prefix, error)
