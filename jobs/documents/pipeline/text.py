"""Text in whatever encoding: found out first, then decoded strictly, a block at a time.

A file may be larger than the memory, so it is read twice: once to see whether all of it is UTF-8, once to decode it.
"""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

import charset_normalizer

from jobs.documents.detect import utf16_without_mark
from jobs.documents.errors import BROKEN_UTF8, NOT_TEXT, UnreadableDocument

BLOCK_CHARS = 1 << 20  # decoded at once; a text up to this size is one page

_SAMPLE_BYTES = 64 << 10  # to guess by, around the first byte that is not UTF-8
_ENOUGH = 16  # bytes beyond ASCII, below which a guess is none
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_HTML = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})", re.IGNORECASE)
_XML = re.compile(rb"\s*<\?xml[^>]{0,200}encoding=[\"']([\w.-]{1,40})", re.IGNORECASE)
_UNKNOWN = "cp1252"  # of most text that is not Unicode and names no encoding
# Told apart from that one well enough; between encodings of Latin letters, a guess is a coin.
_GUESSED = frozenset({
    "cp1251", "koi8_r", "koi8_u", "cp1253", "cp1256", "cp932", "shift_jis", "euc_jp", "euc_jis_2004",
    "gb18030", "gbk", "gb2312", "big5", "cp949", "euc_kr",
})  # fmt: skip
# Python's ways to write text, by which a file could say what no text says: half a surrogate.
_NO_CHARSETS = frozenset(
    {"utf-7", "unicode_escape", "raw_unicode_escape", "unicode-escape", "raw-unicode-escape", "punycode", "idna"}
)
_BREAKS = ("\n\n", "\n", " ")


def encoding_of(path: Path) -> str:
    """The name of a text file's encoding, for `decode`. Raises `UnreadableDocument` for UTF-8 with broken places."""
    with path.open("rb") as file:
        head = file.read(_SAMPLE_BYTES)
        for mark, encoding in _MARKS.items():
            if head.startswith(mark):
                return encoding
        if unmarked := utf16_without_mark(head):
            return unmarked
        if (declared := _declared(head)) and codecs.lookup(declared).name != "utf-8":
            return declared
        file.seek(0)
        invalid, has_letters = _first_invalid(file)
        if invalid is None:
            return "utf-8"
        if has_letters or declared:
            raise UnreadableDocument(BROKEN_UTF8.format(f"{invalid + 1:,}"))
        file.seek(max(0, invalid - _SAMPLE_BYTES // 2))
        return _guess(file.read(_SAMPLE_BYTES))


def decode(path: Path, encoding: str) -> Iterator[str]:
    """The text, with line ends as `\\n`, in blocks that end at a paragraph, a line or a word where there is one.

    Raises `UnreadableDocument` at the first place that is no text in this encoding.
    """
    rest = ""
    # Mac and Windows line ends become \n.
    with path.open(encoding=encoding, errors="strict", newline=None) as file:
        while read := _read(file):
            text = rest + read
            end = len(text) if len(read) < BLOCK_CHARS else _end(text)
            yield text[:end]
            rest = text[end:]
    if rest:
        yield rest


def _read(file: TextIO) -> str:
    try:
        text = file.read(BLOCK_CHARS)
    except UnicodeError:
        raise UnreadableDocument(NOT_TEXT) from None
    if "\0" in text:
        raise UnreadableDocument(NOT_TEXT)
    return text


def _end(text: str) -> int:
    """Where a block that goes on is best cut: in its second half, else at its end."""
    for mark in _BREAKS:
        if (at := text.rfind(mark, len(text) // 2)) >= 0:
            return at + len(mark)
    return len(text)


def _declared(head: bytes) -> str | None:
    """The encoding that HTML or XML names, where Python knows it as one of text."""
    found = _XML.match(head) or _HTML.search(head, 0, 4096)
    if found is None:
        return None
    name = found[1].decode("ascii")
    try:
        b"a".decode(name)
        codec = codecs.lookup(name).name
    except (LookupError, UnicodeError):
        return None
    return None if codec in _NO_CHARSETS else name


def _first_invalid(file: BinaryIO) -> tuple[int | None, bool]:
    """Where the file stops being UTF-8 if it does, and whether it has UTF-8 beyond ASCII before."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset, has_letters = 0, False
    while True:
        block = file.read(BLOCK_CHARS)
        pending = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            valid = error.object[: error.start]
            return offset - pending + error.start, has_letters or not valid.isascii()
        has_letters = has_letters or not text.isascii()
        if not block:
            return None, has_letters
        offset += len(block)


def _guess(sample: bytes) -> str:
    if len(sample) - len(sample.translate(None, bytes(range(128, 256)))) < _ENOUGH:
        return _UNKNOWN
    best = charset_normalizer.from_bytes(sample).best()
    return best.encoding if best is not None and best.encoding in _GUESSED else _UNKNOWN
