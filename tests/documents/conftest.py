from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import psycopg
import pytest

from jobs.documents.delete import delete
from jobs.documents.keys import asset_key, original_key, snapshot_key
from jobs.documents.objects import Objects
from jobs.documents.pipeline.chunk import Chunk, chunk
from jobs.documents.pipeline.parse import ParsedDocument, parse
from jobs.documents.reports import AssetRow, DocumentRow, document_assets, show_documents
from jobs.documents.search import Hit, search
from jobs.documents.submit import Submission, submit
from supervisor.testing.processes import WorkerProcess, running_worker
from supervisor.testing.waiting import wait_for

DOCUMENT = UUID(int=7)
Connection = psycopg.Connection[tuple[Any, ...]]
APP = "jobs.documents.app:app"


class Library:
    """A database, an object store, and the workers that a test starts on them."""

    def __init__(self, url: str, db: Connection, folder: Path, stack: ExitStack) -> None:
        self.url, self.db, self.folder = url, db, folder
        self.store_url = (folder / "objects").as_uri()
        self._stack = stack
        self._workers = 0

    def start(self, **settings: str) -> WorkerProcess:
        """A ready worker until the end of the test; settings are environment variables."""
        return self._stack.enter_context(self.worker(**settings))

    def worker(self, **settings: str) -> AbstractContextManager[WorkerProcess]:
        """A ready worker until the end of the block."""
        self._workers += 1
        log = self.folder / f"worker-{self._workers}.log"
        return running_worker(self.url, log, APP, **{"OBJECT_STORE_URL": self.store_url, **settings})

    @property
    def objects(self) -> Objects:
        return Objects(self.store_url)

    def submit(self, filename: str, content: bytes, collection: str = "default") -> Submission:
        with self.db.transaction():
            given: Submission = submit(self.db, filename, content, collection=collection, objects=self.objects)
        return given

    def cleaning(self) -> bool:
        """Whether a clean-up is still to be done."""
        return bool(
            self.db.execute(
                "SELECT 1 FROM background_jobs WHERE kind = 'clean-up-document' AND status IN ('queued', 'running')"
            ).fetchall()
        )

    def delete(self, document_id: UUID) -> None:
        with self.db.transaction():
            delete(self.db, document_id)

    def found(self, words: str) -> set[UUID]:
        """The documents in which a search finds these words."""
        hits: list[Hit] = search(self.db, words, limit=100)
        return {hit.document_id for hit in hits}

    def documents(self, *ids: UUID) -> list[DocumentRow]:
        rows: list[DocumentRow] = show_documents(self.db, ids)
        return rows

    def own_objects(self, document_id: UUID) -> list[str]:
        """The keys that belong to a document by what its row says, sorted."""
        row = self.db.execute("SELECT edition FROM background_documents WHERE id = %s", [document_id]).fetchone()
        assert row is not None
        return self.expected_objects(document_id, row[0])

    def expected_objects(self, document_id: UUID, edition: str) -> list[str]:
        """The keys that belong to a document of this edition, sorted."""
        assets: list[AssetRow] = document_assets(self.db, document_id)
        own = [original_key(document_id), snapshot_key(document_id, edition)]
        return sorted([*own, *(asset_key(document_id, edition, each.key) for each in assets)])

    def stored(self, document_id: UUID | None = None) -> list[str]:
        """The keys of what the object store holds, of one document or of all, sorted."""
        prefix = "documents" if document_id is None else f"documents/{document_id}"
        return sorted(each.key for each in self.objects.below(prefix))

    def document(self, document_id: UUID) -> DocumentRow:
        rows: list[DocumentRow] = show_documents(self.db, [document_id])
        return rows[0]

    def settled(self, *submissions: Submission, seconds: float = 60) -> list[DocumentRow]:
        """The documents, once nothing more happens to them."""
        ids = [each.document_id for each in submissions]

        def look() -> list[DocumentRow] | None:
            rows: list[DocumentRow] = show_documents(self.db, ids)
            return rows if all(row.is_settled for row in rows) else None

        by_id = {row.id: row for row in wait_for(look, "all documents settled", seconds) or []}
        return [by_id[each] for each in ids]

    def chunks(self, document_id: UUID) -> Sequence[tuple[Any, ...]]:
        return self.db.execute(
            "SELECT id, position, page, heading, text FROM background_document_chunks WHERE document_id = %s "
            "ORDER BY position",
            [document_id],
        ).fetchall()

    def verdicts(self, job_id: int | None) -> list[str]:
        rows = self.db.execute("SELECT verdict FROM background_attempts WHERE job_id = %s ORDER BY claim", [job_id])
        return [row[0] for row in rows]

    def job(self, job_id: int | None, columns: str = "status, attempt") -> tuple[Any, ...]:
        row = self.db.execute(f"SELECT {columns} FROM background_jobs WHERE id = %s", [job_id]).fetchone()
        assert row is not None
        return row


def parsed(filename: str, content: bytes) -> ParsedDocument:
    """A document whose pages and assets have been read, and so can be read again."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "original")
        path.write_bytes(content)
        given = parse(filename, path)
        return replace(given, pages=list(given.pages), assets=list(given.assets))


def chunks_of(filename: str, content: bytes, document_id: UUID = DOCUMENT) -> list[Chunk]:
    return list(chunk(document_id, parsed(filename, content).pages))


@pytest.fixture
def library(url: str, db: Connection, tmp_path: Path) -> Iterator[Library]:
    with ExitStack() as stack:
        yield Library(url, db, tmp_path, stack)
