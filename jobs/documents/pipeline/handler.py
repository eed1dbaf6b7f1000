"""The work of `ingest-document`, in its own child: parse, chunk, embed, index, each behind a status that says so.

Everything becomes visible in one transaction, together with the job's success. A child that dies at any moment before
leaves only objects, in an edition that no document names; whoever records its end has them cleaned up.
"""

import logging
import resource
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from pydantic import BaseModel

from jobs.app import JobContext
from jobs.context import LeaseLost
from jobs.documents.database import Connection, connected
from jobs.documents.errors import NO_TEXT, UnreadableDocument
from jobs.documents.keys import asset_key, snapshot_key
from jobs.documents.pipeline.attempt import CLIENT, Attempt, Stage
from jobs.documents.pipeline.chunk import Chunk, StructuredChunker, chunker_from_environment
from jobs.documents.pipeline.embed import embed_chunks, embedder_from_environment
from jobs.documents.pipeline.index import Index, PostgresIndex
from jobs.documents.pipeline.parse import Asset, ParsedDocument, parse
from jobs.documents.pipeline.parsed import within
from jobs.documents.pipeline.snapshot import SnapshotHeader, SnapshotWriter, read_snapshot
from jobs.documents.pipeline.vectors import VectorFile, VectorWriter
from jobs.documents.task import CLEAN_UP_DOCUMENT, CleanUpDocument, IngestDocument, Source
from jobs.enqueue import enqueue
from jobs.failpoints import Failpoint, failpoint
from jobs.sql import statement

# A child that is stopped inside its transaction would make the next owner of the document wait for its rows.
IDLE_IN_TRANSACTION = "60s"
LOCK_TIMEOUT = "90s"  # longer than that, so a retry gets through

INDEX: Index = PostgresIndex()

log = logging.getLogger("oomph.documents")


class Ingested(BaseModel):
    """The job's result. `peak_memory_mb` is what its child held at most, in MiB, with what it shares with others."""

    document_id: UUID
    pages: int | None
    chunks: int
    peak_memory_mb: int


class StoredAsset(NamedTuple):
    key: str
    page: int | None
    mime_type: str
    size: int


def ingest(payload: IngestDocument, job: JobContext) -> None:
    """Make a document READY. Raises `UnreadableDocument` with a sentence for people; `complete_in` ends the job."""
    attempt = Attempt(payload.document_id, job)
    folder = Path.cwd()  # the job's own, gone with it
    snapshot = folder / "snapshot"
    assets: list[StoredAsset] | None = None
    try:
        if payload.source is Source.PARSE:
            attempt.enter(Stage.PARSING, 0.02, "fetching")
            failpoint(Failpoint.DOCUMENT_PARSING)
            attempt.fetch_original(folder / "original")
            job.progress(0.05, "parsing")
            parsed = parse(attempt.filename, folder / "original")
            attempt.enter(Stage.CHUNKING, 0.4, "chunking")
            failpoint(Failpoint.DOCUMENT_CHUNKING)
            _write_snapshot(attempt, parsed, chunker_from_environment(), snapshot)
            assets = _store_assets(attempt, parsed.assets)
            failpoint(Failpoint.DOCUMENT_ASSETS)
            attempt.objects.put(snapshot_key(attempt.document_id, attempt.edition), snapshot)
            failpoint(Failpoint.DOCUMENT_SNAPSHOT)
            del parsed
            attempt.enter(Stage.EMBEDDING, 0.55, "embedding")
        else:
            attempt.enter(Stage.EMBEDDING, 0.5, "fetching the snapshot")
            attempt.fetch_snapshot(snapshot)
        failpoint(Failpoint.DOCUMENT_EMBEDDING)
        vectors = _embed(snapshot, folder / "vectors", job)
        attempt.enter(Stage.INDEXING, 0.9, "indexing")
        failpoint(Failpoint.DOCUMENT_INDEXING)
        _index(attempt, snapshot, vectors, assets, job)
    except LeaseLost:
        # Whoever took the lease has had its clean-up, perhaps before the last of this was stored.
        attempt.abandon()
        raise
    failpoint(Failpoint.DOCUMENT_READY)


def _write_snapshot(attempt: Attempt, parsed: ParsedDocument, chunker: StructuredChunker, path: Path) -> None:
    header = SnapshotHeader(
        document_id=attempt.document_id,
        filename=attempt.filename,
        sha256=attempt.sha256,
        size=attempt.size,
        mime_type=parsed.mime_type,
        title=parsed.title,
        pages=parsed.page_count,
        parser=parsed.parser,
        chunker=chunker.name,
        created_by=f"oomph {version('oomph')}",
    )
    with SnapshotWriter(path, header) as writer:
        for each in chunker(attempt.document_id, parsed.pages):
            writer.write(each)
    if not writer.chunks:
        raise UnreadableDocument(NO_TEXT)


def _store_assets(attempt: Attempt, assets: Iterable[Asset]) -> list[StoredAsset]:
    stored = []
    for each in within(assets):
        attempt.objects.put(asset_key(attempt.document_id, attempt.edition, each.key), each.content)
        stored.append(StoredAsset(each.key, each.page, each.mime_type, len(each.content)))
    return stored


def _embed(snapshot: Path, path: Path, job: JobContext) -> VectorFile | None:
    """The vectors of a snapshot's chunks, in a file; None where search is full text only."""
    embedder = embedder_from_environment()
    if embedder is None:
        return None
    with connected(CLIENT) as db:
        refusal = INDEX.refuses_vectors(db)
    if refusal is not None:
        log.warning("not embedded, so search is full text only: %s", refusal)
        return None
    _, chunks = read_snapshot(snapshot)
    with VectorWriter(path, embedder.name) as writer:
        for vector in embed_chunks(embedder, _telling(chunks, job)):
            writer.write(vector)
        return writer.finished()


def _telling(chunks: Iterator[Chunk], job: JobContext) -> Iterator[Chunk]:
    for count, each in enumerate(chunks):
        if not count % 64:
            job.progress(0.6, f"embedding, {count} chunks so far")
        yield each


def _index(
    attempt: Attempt, snapshot: Path, vectors: VectorFile | None, assets: list[StoredAsset] | None, job: JobContext
) -> None:
    header, chunks = read_snapshot(snapshot)
    edition = attempt.earlier_edition if assets is None else attempt.edition
    with connected(CLIENT) as db, db.transaction():
        db.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, true), set_config('lock_timeout', %s, true)",
            [IDLE_IN_TRANSACTION, LOCK_TIMEOUT],
        )
        count = INDEX.replace(db, attempt.document_id, chunks, vectors)
        if assets is not None:
            _describe_assets(db, attempt.document_id, assets)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        ingested = Ingested(document_id=attempt.document_id, pages=header.pages, chunks=count, peak_memory_mb=peak_mb)
        job.complete_in(db, ingested)
        described = db.execute(
            statement("describe_document"),
            {
                "document_id": attempt.document_id,
                "job_id": job.job_id,
                "mime_type": header.mime_type,
                "title": header.title,
                "pages": header.pages,
                "parser": header.parser,
                "chunks": count,
                "assets": None if assets is None else len(assets),
                "edition": edition,
            },
        ).fetchone()
        if described is None:
            raise LeaseLost(f"document {attempt.document_id} belongs to another job by now")
        if attempt.earlier_edition not in (None, edition) or job.claim > 1:
            enqueue(
                db,
                CLEAN_UP_DOCUMENT,
                CleanUpDocument(document_id=attempt.document_id),
                dedupe_key=str(attempt.document_id),
            )
        failpoint(Failpoint.DOCUMENT_WRITTEN)


def _describe_assets(db: Connection, document_id: UUID, assets: list[StoredAsset]) -> None:
    db.execute(statement("clear_assets"), {"document_id": document_id})
    db.execute(
        statement("add_assets"),
        {
            "document_id": document_id,
            "keys": [each.key for each in assets],
            "pages": [each.page for each in assets],
            "mime_types": [each.mime_type for each in assets],
            "sizes": [each.size for each in assets],
        },
    )
