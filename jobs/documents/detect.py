"""What type a file is: by its first bytes, and by its name where they leave it open.

A service asks before it takes a file and a child before it parses one, so both refuse in the same words. It imports no
parser. No text is taken for a picture or a program because it begins with the two letters of one ("BM", "MZ"), as the
parser's own detection does.
"""

import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from jobs.documents import file_types
from jobs.documents.errors import DAMAGED, EMPTY, NOT_TEXT, PASSWORD, UNSUPPORTED, UnreadableDocument

HEAD_BYTES = 64 << 10  # enough for the names of the first parts of an office file

_ZIP = b"PK\x03\x04"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OLE_ENCRYPTED = "EncryptedPackage"
_PDF = b"%PDF-"
_PDF_WITHIN = 1024  # bytes may stand before it; every reader of PDF allows that
_SUFFIX = re.compile(r"\.([A-Za-z0-9_+-]{1,20})")
_MARKUP = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--.{0,2000}?-->\s*)?<(?:!doctype\s+)?(html|svg)\b",
    re.IGNORECASE | re.DOTALL,
)
_UTF16_BLOCKS = 3  # of 256 characters, that a text in an alphabet or in Kana uses: its own, and punctuation
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def detect(filename: str, head: bytes, size: int) -> str:
    """The MIME type of a file of `size` bytes that begins with `head`: all of it, or at least `HEAD_BYTES`.

    Raises `UnreadableDocument` where nothing can read such a file.
    """
    if size == 0 or (len(head) >= size and not head.strip()):
        raise UnreadableDocument(EMPTY)
    named = type_by_name(filename)
    if _is_pdf(head, named):
        return file_types.PDF
    if head.startswith(_ZIP):
        return zip_type(_local_names(head), named)
    if head.startswith(_OLE):
        return _ole_type(head, named)
    if head.startswith(b"{\\rtf"):
        return file_types.RTF
    if named in file_types.BINARY_SUFFIXES.values():
        return str(named)
    if file_types.REFUSED.match(head):
        raise UnreadableDocument(UNSUPPORTED)
    return _text_type(head, named)


def ole_directory(head: bytes) -> int | None:
    """Where the names of the streams begin in a file of Microsoft's older container; None for any other file.

    What stands there may be appended to `head`, since it is seldom at the beginning.
    """
    if not head.startswith(_OLE) or len(head) < 52:
        return None
    sector_bits = int.from_bytes(head[30:32], "little")
    return int.from_bytes(head[48:52], "little") + 1 << sector_bits if sector_bits in (9, 12) else None


def type_by_name(filename: str) -> str | None:
    """The type that the extension stands for; None where it stands for none that can be read."""
    suffix = _SUFFIX.fullmatch(PurePath(filename).suffix)
    return file_types.BY_SUFFIX.get(suffix[1].lower()) if suffix else None


def zip_type(names: Iterable[str], named: str | None, *, is_complete: bool = False) -> str:
    """The type of a ZIP file with parts of these names; `mimetype` may be followed by what that part says.

    Raises `UnreadableDocument` for an archive of other files, and if `is_complete` for a document without its parts.
    """
    names = list(names)
    for folder, family in file_types.ZIP_FOLDERS.items():
        if any(name.startswith(folder) for name in names):
            return named if named in file_types.ZIP_FAMILIES[family] else family
    declared = next(
        (name[8:] for name in names if name.startswith("mimetype") and name[8:] in file_types.ZIP_PARTS), named
    )
    if declared not in file_types.ZIP_TYPES:
        raise UnreadableDocument(UNSUPPORTED)
    is_office = any(declared in family for family in file_types.ZIP_FAMILIES.values())
    needed = file_types.ZIP_PARTS.get(declared)
    if is_complete and (is_office or (needed is not None and needed not in names)):
        raise UnreadableDocument(DAMAGED)
    return declared


def utf16_without_mark(head: bytes) -> str | None:
    """The encoding of UTF-16 text without a byte order mark: `utf-16-le`, `utf-16-be`; None for anything else.

    A space or a line's end has its zero on the same side of each pair, and what is no text soon reads as characters
    that nobody writes.
    """
    sample = head[: len(head) // 2 * 2]
    left, right = sample[::2].count(0), sample[1::2].count(0)
    encoding = "utf-16-le" if right > left else "utf-16-be"
    if max(left, right) <= 10 * min(left, right) or _is_text_with_zeros(sample, encoding):
        return None
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)  # a pair of surrogates may be cut at the end
    except UnicodeDecodeError:
        return None
    is_text = all(char.isspace() or unicodedata.category(char) not in ("Cc", "Cn", "Co", "Cs") for char in text)
    return encoding if is_text else None


def _is_text_with_zeros(sample: bytes, encoding: str) -> bool:
    """Whether it is text of single bytes with a few zeros among them: read in pairs, that too would be characters.

    In UTF-16 of any language but a few that are written with hundreds of characters, the larger bytes are all but the
    same; and in those, the smaller ones are seldom UTF-8.
    """
    if sample.count(0) * 4 >= len(sample) or len(set(sample[encoding == "utf-16-le" :: 2]) - {0}) <= _UTF16_BLOCKS:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return True


def _is_pdf(head: bytes, named: str | None) -> bool:
    start = head.find(_PDF, 0, _PDF_WITHIN)
    return start >= 0 and (named == file_types.PDF or not head[:start].strip(b"\xef\xbb\xbf\0 \t\r\n"))


def _ole_type(head: bytes, named: str | None) -> str:
    if _OLE_ENCRYPTED.encode("utf-16-le") in head:
        raise UnreadableDocument(PASSWORD)
    for stream, mime_type in file_types.OLE_STREAMS.items():
        if stream.encode("utf-16-le") in head:
            return mime_type
    if named in file_types.OLE_TYPES:
        return str(named)
    if named in file_types.ZIP_TYPES:  # encrypted, perhaps, and says so further on
        return str(named)
    raise UnreadableDocument(UNSUPPORTED)


def _text_type(head: bytes, named: str | None) -> str:
    markup = _MARKUP.match(head)
    if markup and markup[1].lower() == b"svg":
        raise UnreadableDocument(UNSUPPORTED)
    is_text = head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" not in head or utf16_without_mark(head) is not None
    if markup and named not in file_types.TEXT_TYPES - {file_types.PLAIN, file_types.XML}:
        return file_types.HTML
    if named in file_types.TEXT_TYPES:
        if is_text:
            return str(named)
        raise UnreadableDocument(NOT_TEXT)
    if named is not None:
        raise UnreadableDocument(DAMAGED)
    # Without a name that calls it text, it must look like it.
    if not is_text or (b"\0" not in head and _CONTROL.search(head)):
        raise UnreadableDocument(UNSUPPORTED)
    return file_types.XML if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<?xml") else file_types.PLAIN


def _local_names(head: bytes) -> Iterator[str]:
    """The names of the parts whose headers stand in `head`; after `mimetype`, what this part says."""
    at = 0
    while 0 <= at <= len(head) - 30:
        flags = int.from_bytes(head[at + 6 : at + 8], "little")
        packed = int.from_bytes(head[at + 18 : at + 22], "little")
        name_length = int.from_bytes(head[at + 26 : at + 28], "little")
        extra_length = int.from_bytes(head[at + 28 : at + 30], "little")
        name = head[at + 30 : at + 30 + name_length]
        content = at + 30 + name_length + extra_length
        declared = head[content : content + packed] if name == b"mimetype" else b""
        yield (name + declared.strip()).decode("utf-8", "replace")
        # The size of a part that was written as a stream stands behind it.
        after = content if flags & 8 and not packed else content + packed
        at = head.find(_ZIP, after) if flags & 8 else after
        if head[at : at + 4] != _ZIP:
            return
