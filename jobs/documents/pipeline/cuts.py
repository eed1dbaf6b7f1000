"""Where a text is cut into pieces: at the last paragraph, line, sentence or word that fits, in this order.

A word longer than half a piece is cut, but never inside what a reader sees as one character. Pure.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from jobs.documents.pipeline.units import Unit

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


def pieces(text: str, sections: Sequence[int], size: int, overlap: int, unit: Unit) -> Iterator[tuple[int, int]]:
    """The pieces of `text`, as (start, end): at most `size` units each, none over the start of one of `sections`.

    Within a section, a piece begins with the last `overlap` units at most of the one before.
    """
    units = unit(text)
    start = _SPACE.match(text).end() if text[:1].isspace() else 0  # type: ignore[union-attr]
    while start < len(text):
        last = bisect_right(units, start) - 1 + size
        limit = max(units[last], start + 1) if last < len(units) else len(text)
        end, at_section = _end(text, start, limit, sections)
        yield start, end
        if at_section or end == len(text):
            start = end
        else:
            earliest = units[bisect_left(units, end) - overlap] if overlap else end
            start = _overlap_start(text, max(earliest, (start + end) // 2), end)


def _end(text: str, start: int, limit: int, sections: Sequence[int]) -> tuple[int, bool]:
    """Where the piece from `start` ends, at `limit` or before, and whether a section begins there."""
    following = bisect_right(sections, start)
    if following < len(sections) and sections[following] <= limit:
        return sections[following], True
    if limit == len(text):
        return limit, False
    middle = start + (limit - start) // 2
    for cut in _CUTS:
        places = [
            match.end() for match in cut.finditer(text, middle, limit) if match.end() < limit or cut is not _SPACE
        ]
        if places:
            return places[-1], False
    if text[limit].isspace() or text[limit - 1].isspace():
        return limit, False
    return _cluster_start(text, limit, middle), False


def _overlap_start(text: str, earliest: int, end: int) -> int:
    """The first sentence that begins between `earliest` and `end`; else the first word; else a letter."""
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
