"""Exactly what goes into embedding: what a document is, and its chunks, in one file. No vectors.

An index can be built from it again without parsing. The file is gzip over lines of JSON:

    {"format": 1, "document_id": ..., "parser": ..., ...}      SnapshotHeader
    {"id": ..., "position": 0, "text": ..., ...}               a Chunk a line
    {"chunks": 2, "sha256": ...}                               closes it: of all bytes before, unpacked

It is written and read line by line, so its size is nobody's memory. The same document gives the same bytes.
"""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from jobs.documents.pipeline.chunk import Chunk
from jobs.task import PermanentError

FORMAT = 1
# 1 packs text at some 80 MB/s to a quarter; 6, the usual, takes five times as long to save a fifth of that.
COMPRESSION = 1
MAX_LINE_BYTES = 16_000_000  # a chunk has a few thousand; a damaged file must not be read as one line

_DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error)


class SnapshotError(PermanentError):
    """The snapshot cannot be read; the message says why, and the document must be parsed again."""


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """What was parsed and by what. `size` is bytes of the original, `created_by` the release that wrote it."""

    document_id: UUID
    filename: str
    sha256: str
    size: int
    mime_type: str
    title: str | None
    pages: int | None
    parser: str
    chunker: str
    created_by: str
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class _Format:
    format: int


@dataclass(frozen=True, slots=True)
class _Closing:
    chunks: int
    sha256: str


# Every reader ignores the keys that it does not know, so a new one is no new format.
_HEADER, _FORMAT, _CHUNK, _CLOSING = map(TypeAdapter[Any], (SnapshotHeader, _Format, Chunk, _Closing))


class SnapshotWriter:
    """Writes a snapshot to `path`. Left by an exception, it leaves a file that no reader accepts."""

    def __init__(self, path: Path, header: SnapshotHeader) -> None:
        self.chunks = 0
        self._digest = hashlib.sha256()
        self._file = path.open("wb")
        # Neither a name nor a time in it: the same document gives the same bytes.
        self._packed = gzip.GzipFile("", "wb", COMPRESSION, self._file, mtime=0)
        self._line(_HEADER.dump_json(header))

    def write(self, chunk: Chunk) -> None:
        """The next chunk, in the order of their positions."""
        self._line(_CHUNK.dump_json(chunk))
        self.chunks += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file, self._packed:
            if error is None:
                self._line(_CLOSING.dump_json(_Closing(self.chunks, self._digest.hexdigest())))

    def _line(self, line: bytes) -> None:
        line += b"\n"
        self._digest.update(line)
        self._packed.write(line)


def read_snapshot(path: Path) -> tuple[SnapshotHeader, Iterator[Chunk]]:
    """The header, and the chunks as a stream that can be read once.

    Raises `SnapshotError` where the file is no snapshot or a newer release wrote it. The stream raises it where the
    file turns out to be damaged or cut off: only a stream that ended was whole.
    """
    lines = _lines(path)
    header = next(lines)
    found: _Format = _parsed(_FORMAT, header)
    if found.format > FORMAT:
        raise SnapshotError(
            f"The snapshot has the format {found.format}, this release reads up to {FORMAT}: "
            "upgrade, or parse the document again."
        )
    return _parsed(_HEADER, header), _chunks(lines, header)


def _chunks(lines: Iterator[bytes], header: bytes) -> Iterator[Chunk]:
    digest = hashlib.sha256(header)
    count = 0
    before = next(lines)
    for line in lines:
        digest.update(before)
        yield _parsed(_CHUNK, before)
        count += 1
        before = line
    if _parsed(_CLOSING, before) != _Closing(count, digest.hexdigest()):
        raise _damaged("its content is not what was written")


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines: at least two, or an error."""
    count = 0
    with gzip.open(path) as lines:
        while line := _line(lines):
            yield line
            count += 1
    if count < 2:
        raise _damaged("it is cut off")


def _line(lines: gzip.GzipFile) -> bytes:
    try:
        line = lines.readline(MAX_LINE_BYTES)
    except _DAMAGE as error:
        raise _damaged("it is cut off" if isinstance(error, EOFError) else str(error)) from error
    if line and not line.endswith(b"\n"):
        raise _damaged("a line of it does not end")
    return line


def _parsed(adapter: "TypeAdapter[Any]", line: bytes) -> Any:
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        raise _damaged("a line of it is not what was written") from error


def _damaged(why: str) -> SnapshotError:
    return SnapshotError(f"The snapshot is damaged: {why}. Parse the document again.")
