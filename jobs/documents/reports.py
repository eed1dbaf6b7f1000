"""How documents stand, and whether anybody works on them. Read only, like `jobs.reports`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from jobs.connection import Program, Statement, run
from jobs.documents.task import INGEST_DOCUMENT
from jobs.sql import statement


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """One document. `size` is bytes; `message` is for people; `progress` is 0.0 to 1.0 while it is parsed."""

    id: UUID
    filename: str
    status: str
    mime_type: str | None
    title: str | None
    size: int
    pages: int | None
    chunks: int | None
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


@dataclass(frozen=True, slots=True)
class Attendance:
    """Who would work on documents: how many live workers know the kind, and why it is paused if it is."""

    workers: int
    paused: str | None


def show_documents(db: Any, ids: Sequence[UUID]) -> Any:
    """The documents of these ids, oldest first: a list of `DocumentRow`. Missing ones are left out."""
    return run(db, _documents(list(ids)))


def attendance(db: Any) -> Any:
    """Whether documents that wait have anybody to wait for."""
    return run(db, _attendance())


def _documents(ids: list[UUID]) -> Program[list[DocumentRow]]:
    rows = yield Statement(statement("show_documents"), {"ids": ids})
    return [DocumentRow(UUID(str(row[0])), *row[1:]) for row in rows]


def _attendance() -> Program[Attendance]:
    rows = yield Statement(
        statement("ingest_attendance"), {"kind": INGEST_DOCUMENT.kind, "pool": str(INGEST_DOCUMENT.pool)}
    )
    return Attendance(*rows[0])
