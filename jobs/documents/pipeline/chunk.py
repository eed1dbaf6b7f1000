"""Cuts pages into chunks: pure, so the same text always gives the same chunks at the same positions.

A chunk is a piece of one page, so its page is exact. It ends where its section ends; where that is too far, at the last
paragraph, line, sentence or word that fits, in this order; a word longer than half a chunk is cut, but never inside
what a reader sees as one character. Within a section, a chunk repeats the last words of the one before it, so that a
sentence across the cut can be found whole.
"""

import hashlib
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol
from uuid import UUID, uuid5

from jobs.documents.pipeline.headings import Heading, Page

CHUNK_CHARS = 1_500  # some 300 words of English: a few paragraphs, and well inside what embedding models take
OVERLAP_CHARS = 150  # about one sentence
MAX_HEADING_CHARS = 500  # of a path of headings
MAX_CLUSTER_CHARS = 64  # a letter with more marks than this is not text, and is cut

_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_LINE = re.compile(r"\n\s*")
_SENTENCE = re.compile(
    r"[.!?\u2026\u061f\u06d4\u0964][\"'\u2019\u201d\u00bb)\]]*\s+|[\u3002\uff01\uff1f\uff61][\u300d\u300f\u201d\uff09]*\s*"
)
_SPACE = re.compile(r"\s+")
_CUTS = (_PARAGRAPH, _LINE, _SENTENCE, _SPACE)

_JOINERS = "\u200d\u034f"
_HANGUL_VOWELS_AND_TAILS = range(0x1160, 0x1200)
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_TAGS = range(0xE0020, 0xE0080)
_REGIONAL = range(0x1F1E6, 0x1F200)


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
    """Cuts the pages of a document, which it may read only once, into its chunks, in order."""

    def __call__(self, document_id: UUID, pages: Iterable[Page]) -> Iterator[Chunk]: ...


@dataclass(frozen=True, slots=True)
class _Section:
    start: int
    path: tuple[str, ...]
    is_bare: bool  # nothing stands between its heading and the next one


def chunk(
    document_id: UUID, pages: Iterable[Page], *, size: int = CHUNK_CHARS, overlap: int = OVERLAP_CHARS
) -> Iterator[Chunk]:
    """Cut `pages` into chunks of at most `size` characters, which share at most `overlap` with the one before.

    Raises `ValueError` for a size below 16 or an overlap outside 0 to a quarter of the size.
    """
    if size < 16 or not 0 <= overlap <= size // 4:
        raise ValueError(f"size={size}, overlap={overlap}: at least 16, and 0 to a quarter of the size")
    return _chunks(document_id, pages, size, overlap)


def chunk_id(document_id: UUID, position: int, text: str) -> UUID:
    """The same for the same text at the same position of the same document, however often it is cut."""
    return uuid5(document_id, f"{position}:{hashlib.sha256(text.encode()).hexdigest()}")


def _chunks(document_id: UUID, pages: Iterable[Page], size: int, overlap: int) -> Iterator[Chunk]:
    position = 0
    open_headings: list[Heading] = []  # a section goes on over the page's end
    for page in pages:
        sections = list(_sections(page, open_headings))
        starts = [section.start for section in sections]
        # A heading alone says nothing, so it goes with what follows it.
        cuts = [after.start for before, after in pairwise(sections) if not before.is_bare]
        for start, end in _pieces(page.text, cuts, size, overlap):
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


def _pieces(text: str, sections: Sequence[int], size: int, overlap: int) -> Iterator[tuple[int, int]]:
    start = _SPACE.match(text).end() if text[:1].isspace() else 0  # type: ignore[union-attr]
    while start < len(text):
        end, at_section = _end(text, start, sections, size)
        yield start, end
        start = end if at_section or end == len(text) else _overlap_start(text, end, overlap)


def _end(text: str, start: int, sections: Sequence[int], size: int) -> tuple[int, bool]:
    """Where the piece that begins at `start` ends, and whether a section begins there."""
    limit = min(start + size, len(text))
    following = bisect_right(sections, start)
    if following < len(sections) and sections[following] <= limit:
        return sections[following], True
    if limit == len(text):
        return limit, False
    middle = start + size // 2
    for cut in _CUTS:
        places = [
            match.end() for match in cut.finditer(text, middle, limit) if match.end() < limit or cut is not _SPACE
        ]
        if places:
            return places[-1], False
    if text[limit].isspace() or text[limit - 1].isspace():
        return limit, False
    return _cluster_start(text, limit, middle), False


def _overlap_start(text: str, end: int, overlap: int) -> int:
    """The first sentence that begins within `overlap` characters before `end`; else the first word; else a letter.

    Always behind the start of the piece that ends at `end`: an overlap is at most half of what a piece has at least.
    """
    earliest = end - overlap
    for cut in (_SENTENCE, _SPACE):
        for match in cut.finditer(text, earliest, end):
            if match.end() < end:
                return match.end()
    return next((index for index in range(earliest, end) if _begins_cluster(text, index)), end)


def _cluster_start(text: str, index: int, after: int) -> int:
    """The last place up to `index` and behind `after` where a reader would see a new character begin; else `index`."""
    for candidate in range(index, max(index - MAX_CLUSTER_CHARS, after), -1):
        if _begins_cluster(text, candidate):
            return candidate
    return index


def _begins_cluster(text: str, index: int) -> bool:
    char, before = text[index], text[index - 1]
    code = ord(char)
    if unicodedata.category(char) in ("Mn", "Mc", "Me") or char in _JOINERS or before == "\u200d":
        return False
    if code in _HANGUL_VOWELS_AND_TAILS or code in _SKIN_TONES or code in _TAGS or (before == "\r" and char == "\n"):
        return False
    if code in _REGIONAL:  # flags are pairs of letters, counted from the first of the run
        run = index
        while run and ord(text[run - 1]) in _REGIONAL and index - run < MAX_CLUSTER_CHARS:
            run -= 1
        return (index - run) % 2 == 0
    return True
