"""Documents that are ZIP files: what they unpack to, and the images in them.

Their images are files of their own, so they are copied as they are, one at a time, and never decoded.
"""

import errno
import hashlib
import logging
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from jobs.documents.errors import DAMAGED, PASSWORD, TOO_DEEP, TOO_MUCH, UnreadableDocument
from jobs.documents.pipeline.parsed import Asset

MAX_UNPACKED_BYTES = 64 << 20  # up to here, any ratio will do
MAX_RATIO = 200  # of more; office files pack to a tenth, repetitive sheets to a hundredth, a bomb to a thousandth
MAX_TEXT_BYTES = 1 << 30  # of all parts that are no images; no child has the memory to read more
MAX_DEPTH = 10_000  # of elements; the parser calls itself for each, and STACK_BYTES of its adapter suffice for 50,000
MAX_ASSET_BYTES = 16 << 20
MAX_ASSETS = 1_000

DAMAGES = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError)

_ENCRYPTED = 1
_COUNTED_BYTES = 4_096
_TEXT = re.compile(r"\.(?:xml|rels|x?html?|opf|ncx)$", re.IGNORECASE)
_IMAGE = re.compile(r"(?:(?:word|ppt|xl)/media/|Pictures/).+|.+\.(?:png|jpe?g|gif|webp)", re.IGNORECASE)
_KINDS = (
    (re.compile(rb"\x89PNG\r\n"), "image/png", "png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg", "jpg"),
    (re.compile(rb"GIF8[79]a"), "image/gif", "gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp", "webp"),
)

log = logging.getLogger("oomph.documents")


def names_inside(path: Path) -> list[str]:
    """The names of its parts.

    Raises `UnreadableDocument` for a file that is damaged, has a password or unpacks to far too much. What it says of
    the sizes of its parts is not believed: the parser would unpack a part until it ends.
    """
    try:
        with zipfile.ZipFile(path) as packed:
            members = packed.infolist()
            _check_sizes(members, path.stat().st_size)
            for member in members:
                if _TEXT.search(member.filename):
                    _unpack(packed, member)
    except DAMAGES:
        raise UnreadableDocument(DAMAGED) from None
    except OSError as error:
        if error.errno != errno.EINVAL:  # what a directory gives that points to nowhere
            raise
        raise UnreadableDocument(DAMAGED) from None
    return [member.filename for member in members]


def _check_sizes(members: list[zipfile.ZipInfo], size: int) -> None:
    if any(member.flag_bits & _ENCRYPTED for member in members):
        raise UnreadableDocument(PASSWORD)
    unpacked = sum(member.file_size for member in members)
    text = sum(member.file_size for member in members if _TEXT.search(member.filename))
    if unpacked > max(MAX_UNPACKED_BYTES, MAX_RATIO * size) or text > MAX_TEXT_BYTES:
        raise UnreadableDocument(TOO_MUCH)


def _unpack(packed: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Read a part for its depth: it ends at the size it is said to have, and must have its checksum there."""
    with packed.open(member) as part:
        check_depth(part)


def check_depth(part: IO[bytes]) -> None:
    """Raises `UnreadableDocument` for XML that is nested too deep.

    Counted after every few kilobytes, which hold no thousand of elements: so it takes a hundredth of what parsing does.
    """
    depth = 0
    while block := part.read(1 << 20):
        for start in range(0, len(block), _COUNTED_BYTES):
            piece = block[start : start + _COUNTED_BYTES + 1]  # the next byte tells what a last < is
            end = len(piece) - (start + _COUNTED_BYTES < len(block))
            opened = piece.count(b"<", 0, end) - piece.count(b"<!") - piece.count(b"<?")
            depth = max(0, depth + opened - 2 * piece.count(b"</") - piece.count(b"/>"))
            if depth > MAX_DEPTH:
                raise UnreadableDocument(TOO_DEEP)


def images_inside(path: Path) -> Iterator[Asset]:
    """Its images of the kinds that browsers show, each once, in the order of the file; a damaged one is left out."""
    seen: set[str] = set()
    with zipfile.ZipFile(path) as packed:
        for member in packed.infolist():
            if len(seen) >= MAX_ASSETS:
                log.warning("only the first %d images are kept", MAX_ASSETS)
                return
            if not _IMAGE.fullmatch(member.filename) or member.file_size > MAX_ASSET_BYTES:
                continue
            try:
                content = packed.read(member)
            except (*DAMAGES, OSError) as error:
                log.warning("image %s is damaged: %s", member.filename, error)
                continue
            kind = next(((mime, suffix) for sign, mime, suffix in _KINDS if sign.match(content)), None)
            digest = hashlib.sha256(content).hexdigest()[:16]
            if kind is not None and digest not in seen:
                seen.add(digest)
                yield Asset(f"image-{len(seen)}-{digest}.{kind[1]}", kind[0], None, content)
