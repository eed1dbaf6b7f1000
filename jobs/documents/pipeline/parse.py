"""From the bytes of a file to pages of text: a thin adapter of kreuzberg. Only a child parses.

Importing it is single-threaded and safe in the template; the first extraction starts threads. Every way in which
kreuzberg 4.10 is known to fail becomes `UnreadableDocument` with a sentence for people, or says that memory ran out.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import kreuzberg

from jobs.documents import types
from jobs.documents.detect import detect, utf16_without_mark
from jobs.documents.errors import DAMAGED, NO_TEXT, NOT_TEXT, PASSWORD, TOO_MUCH, UNSUPPORTED, UnreadableDocument
from jobs.documents.pipeline.headings import Page, markdown_headings, place_headings
from jobs.documents.pipeline.references import restore, spell_out_word, spell_out_xml

for _pool in ("TOKIO_WORKER_THREADS", "RAYON_NUM_THREADS"):
    os.environ[_pool] = "1"  # read once, at the first extraction; more threads only cost memory

MAX_TITLE_CHARS = 500
BIG_SHEET_BYTES = 2_000_000  # packed; from here on the names of sheets are not worth half as much memory again

WORD = types.ZIP_FAMILIES[types.WORD]
SHEETS = (
    "application/vnd.openxmlformats-officedocument.spreadsheetml.",
    "application/vnd.ms-excel",
    "application/vnd.oasis.opendocument.spreadsheet",
)
# Read as they are: lines of them say more than a table that was made from them, and cost nothing.
AS_IS = frozenset({"text/plain", "text/csv", "text/tab-separated-values"})
_NO_MEMORY = ("out of memory", "cannot allocate", "memerror")
_NO_THREAD = ("failed to spawn", "temporarily unavailable")
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})", re.IGNORECASE)

# pdfium writes \x02 for the hyphen at a line's end that splits a word. Other control characters separate; the search
# relies on none being left.
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), " ") | {0x02: None, 0x09: "\t", 0x0A: "\n", 0xFEFF: None}
_CONTROLS |= {0x0B: "\n", 0x0C: "\n", 0x85: "\n"}
_HTML_HEAD = re.compile(r"\A---\n.*?\n(?:---|## [\w:.-]+: [^\n]*)\n", re.DOTALL)
_IMAGE = re.compile(r"!\[([^\[\]\n]*)\]\((?:[^()\n]|\([^()\n]*\))*\)")
_LINK = re.compile(r"(?<!\\)\[([^\[\]\n]*)\]\((?:[^()\n]|\([^()\n]*\))*\)")
_ESCAPED = re.compile(r"\\([!-\"$-/:-@\[-`{-~])")  # not of #, which would make a heading


PARSER = f"kreuzberg {kreuzberg.__version__}"


@dataclass(frozen=True, slots=True)
class Asset:
    """An image of a document.

    `key` is a name that is the same whenever the same document is parsed; `page` counts from 1 and is None for formats
    without pages.
    """

    key: str
    mime_type: str
    page: int | None
    content: bytes


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """What a parser found in a file.

    `pages` and `assets` can each be read once, and may read the file while they are: it must stay in place so long.
    Reading them raises what parsing raises. `page_count` is None for formats without pages. `parser` names the library
    and its version.
    """

    mime_type: str
    title: str | None
    page_count: int | None
    pages: Iterable[Page]
    assets: Iterable[Asset]
    parser: str


class Parser(Protocol):
    """Reads a local file. `filename` is what it was called where it came from."""

    def __call__(self, filename: str, path: Path) -> ParsedDocument: ...


def parse(filename: str, path: Path) -> ParsedDocument:
    """The text of the file at `path`. `filename` only helps to tell its type.

    Raises `UnreadableDocument` where no attempt could read it, and `MemoryError` where the memory did not suffice.
    """
    content = path.read_bytes()
    mime_type = detect(filename, content, len(content))
    if mime_type.startswith("text/"):
        text = _decoded(content, mime_type)
        if mime_type in AS_IS:
            return _document(mime_type, None, [Page(None, _clean(text))])
        if mime_type == "text/markdown":
            text = _clean(text)
            return _document(mime_type, None, [Page(None, text, markdown_headings(text))])
        content = text.encode()  # kreuzberg reads UTF-8 only
        del text
    if mime_type in WORD:
        content = spell_out_word(content)
    elif mime_type == types.XML:
        content = spell_out_xml(content)
    is_plain = mime_type.startswith(SHEETS) and len(content) > BIG_SHEET_BYTES
    result = _extract(content, mime_type, "plain" if is_plain else "markdown")
    title = result.metadata.get("title")
    if mime_type == types.PDF:
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
    numbers = [page.number for page in filled if page.number is not None]
    return ParsedDocument(mime_type, title or None, max(numbers, default=None), filled, (), PARSER)


def _decoded(content: bytes, mime_type: str) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ["utf-16"]
    elif unmarked := utf16_without_mark(content):
        encodings = [unmarked]
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


__all__ = ["Asset", "ParsedDocument", "Parser", "parse"]
