"""The declaration of `ingest-document`."""

from datetime import timedelta
from uuid import UUID

from jobs.documents.errors import UnreadableDocument
from jobs.task import Payload, Pool, Task


class IngestDocument(Payload):
    document_id: UUID


INGEST_DOCUMENT = Task(
    kind="ingest-document",  # the trigger on background_jobs that keeps documents in step knows it by this name
    payload_type=IngestDocument,
    pool=Pool.INGEST,
    max_attempts=3,
    timeout=timedelta(minutes=10),
    permanent_errors=(UnreadableDocument,),
)
