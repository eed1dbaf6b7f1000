"""How documents stand, and whether anybody works on them. Read only, like `jobs.reports`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from jobs.connection import Program, Statement, run
from jobs.documents.keys import asset_key
from jobs.documents.task import INGEST_DOCUMENT
from jobs.sql import statement

STATUSES = ("PENDING", "PARSING", "CHUNKING", "EMBEDDING", "INDEXING", "READY", "FAILED")


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """One document. `size` is bytes; `message` is for people; `progress` is 0.0 to 1.0 while its job runs.

    `ready_at` says since when it is found, also while it is being reindexed.
    """

    id: UUID
    collection: str
    filename: str
    status: str
    mime_type: str | None
    title: str | None
    size: int
    pages: int | None
    chunks: int | None
    assets: int | None
    parser: str | None
    job_id: int | None
    message: str | None
    created_at: datetime
    ready_at: datetime | None
    progress: float | None
    progress_note: str | None

    @property
    def is_settled(self) -> bool:
        """Nothing more happens to it by itself."""
        return self.status in ("READY", "FAILED")

    @property
    def is_running(self) -> bool:
        """A job works on it now."""
        return not self.is_settled and self.status != "PENDING"

    @property
    def waits_for_retry(self) -> bool:
        """An attempt at it failed, as `message` says, and the next one is to come."""
        return self.status == "PENDING" and self.message is not None


@dataclass(frozen=True, slots=True)
class AssetRow:
    """An image of a document: `object_key` is where its content lies in the object store, `size` in bytes."""

    key: str
    page: int | None
    mime_type: str
    size: int
    object_key: str


@dataclass(frozen=True, slots=True)
class VectorsRow:
    """How many of a document's chunks have a vector of `model`, which has so many `dimensions`."""

    model: str
    dimensions: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Attendance:
    """Who would work on documents: how many live workers know the kind, and why it is paused if it is."""

    workers: int
    paused: str | None


def show_documents(db: Any, ids: Sequence[UUID]) -> Any:
    """The documents of these ids, oldest first: a list of `DocumentRow`. Missing ones are left out."""
    return run(db, _documents(list(ids)))


def list_documents(
    db: Any,
    *,
    status: str | None = None,
    collection: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> Any:
    """Documents, newest first, at most `limit`: a list of `DocumentRow`. `before` is the last id of the page before."""
    return run(db, _list({"status": status, "collection": collection, "before": before, "limit": limit}))


def document_assets(db: Any, document_id: UUID) -> Any:
    """The images of a document, in the order of their pages: a list of `AssetRow`."""
    return run(db, _assets(document_id))


def document_vectors(db: Any, document_id: UUID) -> Any:
    """The models that a document has vectors of: a list of `VectorsRow`, empty where it is found by words only."""
    return run(db, _vectors(document_id))


def attendance(db: Any) -> Any:
    """Whether documents that wait have anybody to wait for."""
    return run(db, _attendance())


def _documents(ids: list[UUID]) -> Program[list[DocumentRow]]:
    rows = yield Statement(statement("show_documents"), {"ids": ids})
    return [DocumentRow(UUID(str(row[0])), *row[1:]) for row in rows]


def _list(parameters: dict[str, Any]) -> Program[list[DocumentRow]]:
    rows = yield Statement(statement("list_documents"), parameters)
    return [DocumentRow(UUID(str(row[0])), *row[1:]) for row in rows]


def _assets(document_id: UUID) -> Program[list[AssetRow]]:
    rows = yield Statement(statement("document_assets"), {"document_id": document_id})
    return [
        AssetRow(key, page, mime_type, size, asset_key(document_id, edition, key))
        for key, page, mime_type, size, edition in rows
    ]


def _vectors(document_id: UUID) -> Program[list[VectorsRow]]:
    models = yield Statement(statement("vector_models"), {})
    found = []
    for table, model, dimensions in models:
        rows = yield Statement(statement("count_vectors").format(table=table), {"document_id": document_id})
        if rows[0][0]:
            found.append(VectorsRow(model, dimensions, rows[0][0]))
    return found


def _attendance() -> Program[Attendance]:
    rows = yield Statement(
        statement("ingest_attendance"), {"kind": INGEST_DOCUMENT.kind, "pool": str(INGEST_DOCUMENT.pool)}
    )
    return Attendance(*rows[0])
