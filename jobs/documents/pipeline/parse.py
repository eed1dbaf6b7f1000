"""From the bytes of a file to pages of text: a thin adapter of kreuzberg. Only a child parses.

Importing it is single-threaded and safe in the template; the first extraction starts threads. Every way in which
kreuzberg 4.10 is known to fail becomes `UnreadableDocument` with a sentence for people, or says that memory ran out.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kreuzberg

from jobs.documents.errors import UnreadableDocument
from jobs.documents.pipeline.headings import Page, markdown_headings, place_headings
from jobs.documents.pipeline.references import restore, spell_out_word, spell_out_xml

for _pool in ("TOKIO_WORKER_THREADS", "RAYON_NUM_THREADS"):
    os.environ[_pool] = "1"  # read once, at the first extraction; more threads only cost memory

MAX_TITLE_CHARS = 500
BIG_SHEET_BYTES = 2_000_000  # packed; from here on the names of sheets are not worth half as much memory again

PDF = "application/pdf"
WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml."
XML = frozenset({"application/xml", "text/xml"})
SHEETS = (
    "application/vnd.openxmlformats-officedocument.spreadsheetml.",
    "application/vnd.ms-excel",
    "application/vnd.oasis.opendocument.spreadsheet",
)
# Read as they are: lines of them say more than a table that was made from them, and cost nothing.
AS_IS = frozenset({"text/plain", "text/csv", "text/tab-separated-values"})
ARCHIVES = frozenset({"application/zip", "application/gzip", "application/x-tar", "application/x-7z-compressed"})
# The content says no more than this of many formats; then the name knows better.
COARSE = frozenset({None, "text/plain", "text/xml", "application/xml", "application/json", "application/zip"})

EMPTY = "The file is empty."
PASSWORD = "The document is protected by a password."  # noqa: S105
UNSUPPORTED = "This type of file is not supported."
NOT_TEXT = "The file is not readable as text."
DAMAGED = "The document is damaged, or not of the type that its name says."
TOO_MUCH = "The document unpacks to far more data than a document holds."
NO_TEXT = "No text was found in the document. Scanned pages and pictures are not read."

_OLE = b"\xd0\xcf\x11\xe0"
_OLE_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_NO_MEMORY = ("out of memory", "cannot allocate", "memerror")
_NO_THREAD = ("failed to spawn", "temporarily unavailable")
_SUFFIX = re.compile(r"\.[A-Za-z0-9_+-]{1,20}")
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})", re.IGNORECASE)

# pdfium writes \x02 for the hyphen at a line's end that splits a word. Other control characters separate; the search
# relies on none being left.
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), " ") | {0x02: None, 0x09: "\t", 0x0A: "\n", 0xFEFF: None}
_CONTROLS |= {0x0B: "\n", 0x0C: "\n", 0x85: "\n"}
_HTML_HEAD = re.compile(r"\A---\n.*?\n(?:---|## [\w:.-]+: [^\n]*)\n", re.DOTALL)
_IMAGE = re.compile(r"!\[([^\[\]\n]*)\]\((?:[^()\n]|\([^()\n]*\))*\)")
_LINK = re.compile(r"(?<!\\)\[([^\[\]\n]*)\]\((?:[^()\n]|\([^()\n]*\))*\)")
_ESCAPED = re.compile(r"\\([!-\"$-/:-@\[-`{-~])")  # not of #, which would make a heading


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    mime_type: str
    title: str | None
    pages: Sequence[Page]

    @property
    def page_count(self) -> int | None:
        """The last page with text; None for formats without pages."""
        return max((page.number for page in self.pages if page.number is not None), default=None)


def parse(filename: str, content: bytes) -> ParsedDocument:
    """The text of a file. `filename` only helps to tell its type.

    Raises `UnreadableDocument` where no attempt could read it, and `MemoryError` where the memory did not suffice.
    """
    mime_type = _mime_type(filename, content)
    if mime_type.startswith("text/"):
        text = _decoded(content, mime_type)
        if mime_type in AS_IS:
            return _document(mime_type, None, [Page(None, _clean(text))])
        if mime_type == "text/markdown":
            text = _clean(text)
            return _document(mime_type, None, [Page(None, text, markdown_headings(text))])
        content = text.encode()  # kreuzberg reads UTF-8 only
        del text
    if mime_type.startswith(WORD):
        content = spell_out_word(content)
    elif mime_type in XML:
        content = spell_out_xml(content)
    is_plain = mime_type.startswith(SHEETS) and len(content) > BIG_SHEET_BYTES
    result = _extract(content, mime_type, "plain" if is_plain else "markdown")
    title = result.metadata.get("title")
    if mime_type == PDF:
        pages = [Page(page["page_number"], _clean(page["content"])) for page in result.pages or []]
        return _document(mime_type, title, place_headings(pages, _clean(result.content)))
    # The pages that kreuzberg 4.10 reports for slides, sheets and Word files are not reliable.
    if is_plain:
        return _document(mime_type, title, [Page(None, _clean(result.content))])
    text = _readable(_clean(restore(result.content)), mime_type)
    return _document(mime_type, title, [Page(None, text, markdown_headings(text))])


def _document(mime_type: str, title: object, pages: Sequence[Page]) -> ParsedDocument:
    filled = [page for page in pages if page.text.strip()]
    if not filled:
        raise UnreadableDocument(NO_TEXT)
    if isinstance(title, str):
        title = " ".join(_clean(title).split())[:MAX_TITLE_CHARS]
    else:
        title = next((heading.title for page in filled for heading in page.headings if heading.level == 1), None)
    return ParsedDocument(mime_type, title or None, filled)


def _mime_type(filename: str, content: bytes) -> str:
    if not content.strip():
        raise UnreadableDocument(EMPTY)
    if content.startswith(_OLE) and _OLE_ENCRYPTED in content:
        raise UnreadableDocument(PASSWORD)
    sniffed: str | None
    try:
        sniffed = kreuzberg.detect_mime_type(content)
    except RuntimeError:  # binary, or text in another encoding than UTF-8
        sniffed = None
    named = _type_by_name(Path(filename).suffix)
    found = (named or sniffed) if sniffed in COARSE else sniffed
    if found == "text/x-source-code":
        return "text/plain"  # as itself, kreuzberg would download grammars for it
    if found is None or found in ARCHIVES or found.startswith(("image/", "audio/", "video/")):
        raise UnreadableDocument(UNSUPPORTED)
    return found


def _type_by_name(suffix: str) -> str | None:
    if not _SUFFIX.fullmatch(suffix):
        return None
    # kreuzberg tells the type of an extension only for a file that exists.
    with tempfile.TemporaryDirectory(prefix="oomph-") as folder:
        Path(folder, f"x{suffix}").touch()
        try:
            return kreuzberg.validate_mime_type(kreuzberg.detect_mime_type_from_path(f"{folder}/x{suffix}"))
        except (RuntimeError, kreuzberg.KreuzbergError):
            return None


def _decoded(content: bytes, mime_type: str) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ["utf-16"]
    else:
        encodings = ["utf-8-sig", "cp1252"]
        if mime_type == "text/html" and (declared := _CHARSET.search(content, 0, 4096)):
            encodings.insert(1, declared[1].decode("ascii"))
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except (UnicodeError, LookupError):
            continue
        if "\0" not in text:
            return text
    raise UnreadableDocument(NOT_TEXT)


def _extract(content: bytes, mime_type: str, output_format: str) -> Any:
    config = kreuzberg.ExtractionConfig(  # type: ignore[call-arg]  # its stub lacks disable_ocr
        use_cache=False,
        disable_ocr=True,
        output_format=output_format,
        pages=kreuzberg.PageConfig(extract_pages=True),
        concurrency=kreuzberg.ConcurrencyConfig(max_threads=1),
    )
    try:
        return kreuzberg.extract_bytes_sync(content, mime_type, config)
    except (kreuzberg.KreuzbergError, RuntimeError) as error:
        raise _told(error) from error


def _told(error: Exception) -> Exception:
    words = str(error).lower()
    if any(sign in words for sign in _NO_MEMORY):
        return MemoryError(str(error))
    if any(sign in words for sign in _NO_THREAD):
        # In Python's own words, by which the supervisor judges: at the memory limit it is memory, else another limit.
        return RuntimeError(f"can't start new thread: {error}")
    if "password" in words:
        return UnreadableDocument(PASSWORD)
    if "security limit" in words:
        return UnreadableDocument(TOO_MUCH)
    if "unsupported format" in words:
        return UnreadableDocument(UNSUPPORTED)
    if isinstance(error, (kreuzberg.ParsingError, kreuzberg.ValidationError)):
        return UnreadableDocument(DAMAGED)
    return error


def _clean(text: str) -> str:
    return text.replace("\r\n", "\n").translate(_CONTROLS)


def _readable(markdown: str, mime_type: str) -> str:
    """Markdown as kreuzberg writes it, without what no reader saw: addresses, escapes, the head of HTML."""
    if mime_type in ("text/html", "application/xhtml+xml"):
        markdown = _HTML_HEAD.sub("", markdown, count=1)
    return _ESCAPED.sub(r"\1", _LINK.sub(r"\1", _IMAGE.sub(r"\1", markdown)))


__all__ = ["ParsedDocument", "parse"]
