"""From a file to pages of text and images: which way for which type. Only a child parses."""

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from jobs.documents import file_types
from jobs.documents.detect import HEAD_BYTES, detect, ole_directory, type_by_name, zip_type
from jobs.documents.pipeline.archive import check_depth, images_inside, names_inside
from jobs.documents.pipeline.extract import PARSER, clean, extract
from jobs.documents.pipeline.headings import Page, markdown_headings, markdown_pages
from jobs.documents.pipeline.mail import spell_out_mail
from jobs.documents.pipeline.parsed import Asset, ParsedDocument, Parser, title_of, with_text
from jobs.documents.pipeline.pdf import parse_pdf
from jobs.documents.pipeline.references import restore, spell_out_word, spell_out_xml
from jobs.documents.pipeline.text import decode, encoding_of

BIG_SHEET_BYTES = 2_000_000  # packed; from here on the names of sheets are not worth half as much memory again

WORD = file_types.ZIP_FAMILIES[file_types.WORD]
SHEETS = (
    "application/vnd.openxmlformats-officedocument.spreadsheetml.",
    "application/vnd.ms-excel",
    "application/vnd.oasis.opendocument.spreadsheet",
)
# Read as they are: lines of them say more than a table that was made from them, and cost nothing.
AS_IS = frozenset({file_types.PLAIN, "text/csv", "text/tab-separated-values"})
OUTLINE = "application/xml+opml"
MAIL = "message/rfc822"  # each part of it has an encoding of its own

_HTML_HEAD = re.compile(r"\A---\n.*?\n(?:---|## [\w:.-]+: [^\n]*)\n", re.DOTALL)
_IMAGE = re.compile(r"!\[([^\[\]\n]*)\]\((?:[^()\n]|\([^()\n]*\))*\)")
_LINK = re.compile(r"(?<!\\)\[([^\[\]\n]*)\]\((?:[^()\n]|\([^()\n]*\))*\)")
_ESCAPED = re.compile(r"\\([!-\"$-/:-@\[-`{-~])")  # not of #, which would make a heading
_XML_ENCODING = re.compile(r"\A(\s*<\?xml[^>]{0,200}?)\s+encoding=[\"'][\w.-]{1,40}[\"']", re.IGNORECASE)


def parse(filename: str, path: Path) -> ParsedDocument:
    """The text and the images of the file at `path`. `filename` only helps to tell its type.

    Raises `UnreadableDocument` where no attempt could read it, and `MemoryError` where the memory did not suffice. Text
    of any size is read as a stream, and so are the parts of a long PDF.
    """
    mime_type = _detect(filename, path)
    if mime_type == file_types.PDF:
        return parse_pdf(path)
    if mime_type in AS_IS:
        return _document(mime_type, None, (Page(None, clean(block)) for block in decode(path, encoding_of(path))))
    if mime_type == file_types.MARKDOWN:
        return _document(mime_type, None, markdown_pages(clean(block) for block in decode(path, encoding_of(path))))
    if mime_type in file_types.ZIP_TYPES:
        return _parse(path, mime_type, images_inside(path))
    return _parse(path, mime_type, ())


def _detect(filename: str, path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        if (at := ole_directory(head)) is not None:
            file.seek(at)
            head += file.read(HEAD_BYTES)
    mime_type = detect(filename, head, path.stat().st_size)
    if mime_type not in file_types.ZIP_TYPES or not head.startswith(b"PK"):
        return mime_type
    told_by_head = mime_type if mime_type in file_types.ZIP_PARTS else type_by_name(filename)
    return zip_type(names_inside(path), told_by_head, is_complete=True)


def _parse(path: Path, mime_type: str, assets: Iterable[Asset]) -> ParsedDocument:
    is_plain = mime_type.startswith(SHEETS) and path.stat().st_size > BIG_SHEET_BYTES
    with TemporaryDirectory(prefix="oomph-") as folder:
        source = _prepared(path, mime_type, Path(folder, "prepared"))
        result = extract(source, mime_type, "plain" if is_plain else "markdown")
    title = result.metadata.get("title")
    # The pages that kreuzberg 4.10 reports for slides, sheets and Word files are not reliable.
    if is_plain:
        page = Page(None, clean(result.content))
    else:
        text = _readable(clean(restore(result.content)), mime_type)
        page = Page(None, text, markdown_headings(text))
    return _document(mime_type, clean(title) if isinstance(title, str) else None, [page], assets)


def _prepared(path: Path, mime_type: str, target: Path) -> Path:
    """The file as kreuzberg reads it without loss: in UTF-8, and without character references where it drops them."""
    if mime_type in WORD:
        return target if spell_out_word(path, target) else path
    if mime_type == MAIL:
        return target if spell_out_mail(path, target, partial(_html, target.with_suffix(".html"))) else path
    if mime_type not in file_types.TEXT_TYPES:
        return path
    if mime_type == OUTLINE:  # of all XML that is a file of its own, the only one that is read by recursion
        with path.open("rb") as file:
            check_depth(file)
    encoding = encoding_of(path)
    if encoding == "utf-8" and mime_type != file_types.XML:
        return path
    with target.open("w", encoding="utf-8", newline="") as file:
        for number, block in enumerate(decode(path, encoding)):
            text = block if number else _XML_ENCODING.sub(r"\1", block)
            file.write(spell_out_xml(text) if mime_type == file_types.XML else text)
    return target


def _html(part: Path, page: str) -> str:
    """The text of HTML, by way of a file."""
    part.write_text(page, encoding="utf-8", errors="replace")
    return _readable(clean(extract(part, file_types.HTML, "markdown").content), file_types.HTML)


def _document(mime_type: str, title: str | None, pages: Iterable[Page], assets: Iterable[Asset] = ()) -> ParsedDocument:
    first, filled = with_text(pages)
    return ParsedDocument(mime_type, title_of(title, first), None, filled, assets, PARSER)


def _readable(markdown: str, mime_type: str) -> str:
    """Markdown as kreuzberg writes it, without what no reader saw: addresses, escapes, the head of HTML."""
    if mime_type in (file_types.HTML, file_types.XHTML):
        markdown = _HTML_HEAD.sub("", markdown, count=1)
    return _ESCAPED.sub(r"\1", _LINK.sub(r"\1", _IMAGE.sub(r"\1", markdown)))


__all__ = ["Asset", "ParsedDocument", "Parser", "parse"]
