"""The declarations of the kinds that work on documents."""

from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from jobs.app import Tick
from jobs.documents.errors import UnreadableDocument
from jobs.task import Payload, Pool, Priority, Task


class Source(StrEnum):
    """What an index is made from."""

    PARSE = "parse"  # the original, from the beginning
    SNAPSHOT = "snapshot"  # the chunks of the last parsing, without doing that again


class IngestDocument(Payload):
    """Which document, and what it is made from: its original, or the snapshot of its last parsing."""

    document_id: UUID
    source: Source = Source.PARSE


class CleanUpDocument(Payload):
    document_id: UUID


INGEST_DOCUMENT = Task(
    kind="ingest-document",  # the trigger on background_jobs that keeps documents in step knows it by this name
    payload_type=IngestDocument,
    pool=Pool.INGEST,
    max_attempts=3,
    timeout=timedelta(minutes=30),  # 200 MB of text take three minutes; with an embedder, as long as that takes
    permanent_errors=(UnreadableDocument,),
)

CLEAN_UP_DOCUMENT = Task(
    kind="clean-up-document",  # the same trigger enqueues it
    payload_type=CleanUpDocument,
    pool=Pool.SYSTEM,
    max_attempts=10,
    priority=Priority.BULK,
)

# What no document's row knows of: of submissions that were rolled back, and of workers that were lost and came back.
SWEEP_OBJECTS = Task(
    kind="sweep-document-objects",
    payload_type=Tick,
    pool=Pool.SYSTEM,
    timeout=timedelta(hours=1),
    priority=Priority.BULK,
)

INGEST_FOLDER = Task(kind="ingest-folder", payload_type=Tick, pool=Pool.SYSTEM, max_attempts=1)
