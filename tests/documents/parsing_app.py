"""An app whose children parse a file and cut it into chunks, as the ingestion does, and write nothing."""

import re
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from jobs import App, Handler, JobContext, Payload, Pool, Task
from jobs.documents.errors import UnreadableDocument
from tests.documents.conftest import DOCUMENT


class ParseFile(Payload):
    filename: str
    path: str


class Parsed(BaseModel):
    pages: int | None
    chunks: int
    images: int
    peak_mb: int
    limit_mb: int


PARSE_FILE = Task(
    kind="parse-file",
    payload_type=ParseFile,
    pool=Pool.INGEST,
    max_attempts=1,
    timeout=timedelta(minutes=5),
    permanent_errors=(UnreadableDocument,),
)


def parse_file(payload: ParseFile, job: JobContext) -> Parsed:
    from jobs.documents.pipeline.chunk import chunk
    from jobs.documents.pipeline.parse import parse

    parsed = parse(payload.filename, Path(payload.path))
    chunks = sum(1 for _ in chunk(DOCUMENT, parsed.pages))
    images = sum(1 for _ in parsed.assets)
    status = Path("/proc/self/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+)", status)
    assert peak is not None
    limit = re.search(r"Max data size\s+(\d+)", Path("/proc/self/limits").read_text())
    assert limit is not None
    return Parsed(
        pages=parsed.page_count, chunks=chunks, images=images, peak_mb=int(peak[1]) >> 10, limit_mb=int(limit[1]) >> 20
    )


def app() -> App:
    return App(
        handlers=[Handler(PARSE_FILE, parse_file)],
        preload=["kreuzberg", "jobs.documents.pipeline.parse", "jobs.documents.pipeline.chunk"],
    )
