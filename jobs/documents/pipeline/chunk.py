"""Cuts pages into chunks: pure, so the same text always gives the same chunks at the same positions.

A chunk is a piece of one page, so its page is exact. It ends where its section ends, and where that is too far, at a
place that hurts least (cuts.py). Within a section, a chunk repeats the last words of the one before it, so that a
sentence across the cut can be found whole.
"""

import hashlib
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol
from uuid import UUID, uuid5

from jobs.documents.numbers import whole_number
from jobs.documents.pipeline.cuts import pieces
from jobs.documents.pipeline.headings import Heading, Page
from jobs.documents.pipeline.units import UNITS, Unit

CHUNK_CHARS = 1_500  # some 300 words of English: a few paragraphs, and well inside what embedding models take
OVERLAP_CHARS = 150  # about one sentence
MIN_SIZE = 16
MAX_HEADING_CHARS = 500  # of a path of headings


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document, under an id that is the same whenever the same document has the same text there.

    `position` counts from 0 without gaps, `page` from 1. `heading` is the path to the section, such as `Results >
    Table 2`.
    """

    id: UUID
    position: int
    page: int | None
    heading: str | None
    text: str


class Chunker(Protocol):
    """Cuts the pages of a document, which it may read only once, into its chunks, in order.

    `name` says how: what it cuts under another name may be other chunks.
    """

    @property
    def name(self) -> str: ...

    def __call__(self, document_id: UUID, pages: Iterable[Page]) -> Iterator[Chunk]: ...


@dataclass(frozen=True, slots=True)
class StructuredChunker:
    """Chunks of at most `size` units, which share at most `overlap` of them with the one before.

    `unit` is a name of `units.UNITS`, or any function of that kind. Raises `ValueError` for a size below 16, an overlap
    outside 0 to a quarter of the size, and a unit that does not exist.
    """

    size: int = CHUNK_CHARS
    overlap: int = OVERLAP_CHARS
    unit: str | Unit = "characters"

    def __post_init__(self) -> None:
        if self.size < MIN_SIZE or not 0 <= self.overlap <= self.size // 4:
            raise ValueError(
                f"size={self.size}, overlap={self.overlap}: at least {MIN_SIZE}, and 0 to a quarter of the size"
            )
        if isinstance(self.unit, str) and self.unit not in UNITS:
            raise ValueError(f"unit={self.unit}: {' or '.join(UNITS)}")

    @property
    def name(self) -> str:
        unit = self.unit if isinstance(self.unit, str) else self.unit.__name__
        return f"structured {self.size}/{self.overlap} {unit}"

    def __call__(self, document_id: UUID, pages: Iterable[Page]) -> Iterator[Chunk]:
        unit = UNITS[self.unit] if isinstance(self.unit, str) else self.unit
        return _chunks(document_id, pages, self.size, self.overlap, unit)


chunk = StructuredChunker()


def chunker_from_environment() -> StructuredChunker:
    """What CHUNK_SIZE, CHUNK_OVERLAP and CHUNK_UNIT ask for. Raises `ValueError` where that is no chunker.

    CHUNK_UNIT is `characters` or `tokens`, and needs CHUNK_SIZE where it is not characters; the overlap is a tenth of
    the size unless it is given.
    """
    unit = os.environ.get("CHUNK_UNIT") or "characters"
    if unit not in UNITS:
        raise ValueError(f"CHUNK_UNIT={unit}: allowed are {' and '.join(UNITS)}")
    if unit != "characters" and not os.environ.get("CHUNK_SIZE"):
        raise ValueError(f"CHUNK_UNIT={unit} needs CHUNK_SIZE: the default size is in characters")
    size = whole_number("CHUNK_SIZE", CHUNK_CHARS, least=MIN_SIZE)
    overlap = whole_number("CHUNK_OVERLAP", size // 10, least=0, most=size // 4)
    return StructuredChunker(size, overlap, unit)


@dataclass(frozen=True, slots=True)
class _Section:
    start: int
    path: tuple[str, ...]
    is_bare: bool  # nothing stands between its heading and the next one


def chunk_id(document_id: UUID, position: int, text: str) -> UUID:
    """The same for the same text at the same position of the same document, however often it is cut."""
    return uuid5(document_id, f"{position}:{hashlib.sha256(text.encode()).hexdigest()}")


def _chunks(document_id: UUID, pages: Iterable[Page], size: int, overlap: int, unit: Unit) -> Iterator[Chunk]:
    position = 0
    open_headings: list[Heading] = []  # a section goes on over the page's end
    for page in pages:
        sections = list(_sections(page, open_headings))
        starts = [section.start for section in sections]
        # A heading alone says nothing, so it goes with what follows it.
        cuts = [after.start for before, after in pairwise(sections) if not before.is_bare]
        for start, end in pieces(page.text, cuts, size, overlap, unit):
            if text := page.text[start:end].strip():
                path = sections[bisect_left(starts, end) - 1].path
                heading = " > ".join(path)[:MAX_HEADING_CHARS] or None
                yield Chunk(chunk_id(document_id, position, text), position, page.number, heading, text)
                position += 1


def _sections(page: Page, open_headings: list[Heading]) -> Iterator[_Section]:
    ends = [*(heading.offset for heading in page.headings), len(page.text)]
    titles = tuple(heading.title for heading in open_headings)
    yield _Section(0, titles, is_bare=not page.text[: ends[0]].strip())
    for heading, end in zip(page.headings, ends[1:], strict=True):
        while open_headings and open_headings[-1].level >= heading.level:
            open_headings.pop()
        open_headings.append(heading)
        titles = tuple(each.title for each in open_headings)
        yield _Section(heading.offset, titles, is_bare=not page.text[heading.end : end].strip())
