"""What a parser gives: the port that `parse` fills."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol

from jobs.documents.errors import NO_TEXT, UnreadableDocument
from jobs.documents.pipeline.headings import Page

MAX_TITLE_CHARS = 500
MAX_ASSETS_BYTES = 512 << 20  # of one document together; a small file may unpack to twenty times that

log = logging.getLogger("oomph.documents")


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

    `pages` and `assets` can each be read once, and read the file while they are: it must stay in place so long.
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


def with_text(pages: Iterable[Page]) -> tuple[Page, Iterator[Page]]:
    """The first page with text, and all pages with text. Raises `UnreadableDocument` where there is none."""
    filled = (page for page in pages if page.text.strip())
    first = next(filled, None)
    if first is None:
        raise UnreadableDocument(NO_TEXT)
    return first, chain([first], filled)


def title_of(given: object, first: Page) -> str | None:
    """The title that a document names, on one line; else its first heading of the highest level."""
    if isinstance(given, str) and (title := " ".join(given.split())):
        return title[:MAX_TITLE_CHARS]
    return next((heading.title for heading in first.headings if heading.level == 1), None)


def within(assets: Iterable[Asset], most: int = MAX_ASSETS_BYTES) -> Iterator[Asset]:
    """The first assets, up to `most` bytes of all."""
    held = 0
    for asset in assets:
        held += len(asset.content)
        if held > most:
            log.warning("only the images that fit in %d MB are kept", most >> 20)
            return
        yield asset
