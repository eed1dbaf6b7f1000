"""A submitted file on its way in: read once, measured, hashed, and its type told, before anything is stored."""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import IO, BinaryIO

from jobs.documents.detect import HEAD_BYTES, detect, ole_directory
from jobs.documents.errors import UnreadableDocument

MAX_MB = 256  # what a child of 512 MiB still reads, as text
VARIABLE = "DOCUMENT_MAX_MB"
READ_BYTES = 1 << 20


def max_document_bytes() -> int:
    """The largest file that is taken: DOCUMENT_MAX_MB, in MiB. Raises `ValueError` where that is no number above 0."""
    given = os.environ.get(VARIABLE, str(MAX_MB))
    if not given.isascii() or not given.isdigit() or int(given) < 1:
        raise ValueError(f"{VARIABLE}={given}: a whole number of MiB, at least 1, is allowed")
    return int(given) << 20


class Intake:
    """One submitted file. After `take`: `sha256`, `size` in bytes, `mime_type`, and `content` for the store."""

    sha256: str
    size: int
    mime_type: str

    def __init__(self, filename: str, source: bytes | BinaryIO, max_bytes: int | None) -> None:
        self._filename = filename
        self._source = source
        self._max_bytes = max_document_bytes() if max_bytes is None else max_bytes
        self._spooled: IO[bytes] | None = None

    @property
    def content(self) -> bytes | Path:
        """What was read. A stream's stands in a file of our own: it can be read once, and the store reads it again."""
        if self._spooled is None:
            assert isinstance(self._source, bytes)
            return self._source
        return Path(self._spooled.name)

    def take(self) -> None:
        """Read all of it. Raises `UnreadableDocument` for a file that is empty, too large or of a type nobody reads."""
        if isinstance(self._source, bytes):
            self._measure(len(self._source))
            self.sha256 = hashlib.sha256(self._source).hexdigest()
        else:
            self._spool(self._source)
        head = self._head(0)
        if (at := ole_directory(head)) is not None:
            head += self._head(at)
        self.mime_type = detect(self._filename, head, self.size)

    def close(self) -> None:
        if self._spooled is not None:
            self._spooled.close()

    def _measure(self, size: int) -> None:
        if size > self._max_bytes:
            raise UnreadableDocument(f"The file has more than {self._max_bytes >> 20} MB.")
        self.size = size

    def _spool(self, source: BinaryIO) -> None:
        self._spooled = tempfile.NamedTemporaryFile(prefix="oomph-")  # noqa: SIM115  (closed by close)
        digest, size = hashlib.sha256(), 0
        while piece := source.read(READ_BYTES):
            if not isinstance(piece, bytes):
                raise TypeError("content must be bytes or a binary stream, not a stream of text")
            size += len(piece)
            self._measure(size)
            digest.update(piece)
            self._spooled.write(piece)
        self._measure(size)
        self._spooled.flush()
        self.sha256 = digest.hexdigest()

    def _head(self, at: int) -> bytes:
        """What types are told by: the first bytes from a place on."""
        if self._spooled is None:
            assert isinstance(self._source, bytes)
            return self._source[at : at + HEAD_BYTES]
        self._spooled.seek(at)
        return self._spooled.read(HEAD_BYTES)
