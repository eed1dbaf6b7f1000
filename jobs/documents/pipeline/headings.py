"""Where the sections of a text begin. Pure: text in, offsets out."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

MAX_TITLE_CHARS = 200  # a longer line is a paragraph that was marked by mistake
MAX_PDF_HEADING_LINES = 4  # over which a heading in large type may break

MAX_LINE_CHARS = 1_000  # with marks and links that are not shown; taking these off may need the square of it

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_UNDERLINE = re.compile(r" {0,3}(=+|-{3,})[ \t]*$")
_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\n]*\)")
_MARKS = re.compile(r"(\*{1,3}|_{2,3}|`)(?=\S)(.+?)(?<=\S)\1")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")


@dataclass(frozen=True, slots=True)
class Heading:
    """A section begins: its heading stands at `offset` to `end` of its page's text, in characters.

    `level` is 1 for the highest.
    """

    offset: int
    end: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class Page:
    """Text that belongs together: a page, or all of a document whose format has none (`number` is None then)."""

    number: int | None
    text: str
    headings: Sequence[Heading] = ()


def markdown_headings(text: str) -> list[Heading]:
    """The headings of a Markdown text, both with # and underlined; what stands in code is none."""
    return _scan(text, "")[0]


def markdown_pages(blocks: Iterable[str]) -> Iterator[Page]:
    """A Markdown text that comes in blocks of whole lines, each as a page without number."""
    fence = ""
    for block in blocks:
        headings, fence = _scan(block, fence)
        yield Page(None, block, headings)


def place_headings(pages: Sequence[Page], markdown: str) -> list[Page]:
    """Give plain pages the headings that the same text has in Markdown, each at the line or lines where it stands.

    Headings are looked for in their order; one whose lines are not found is left out.
    """
    places: dict[str, list[tuple[int, int, int]]] = {}  # a line, or a few -> (page, offset, end), ascending
    for index, page in enumerate(pages):
        for offset, end, words in _line_groups(page.text):
            places.setdefault(words, []).append((index, offset, end))
    placed: list[list[Heading]] = [[] for _ in pages]
    after = (0, -1, -1)
    for heading in markdown_headings(markdown):
        found = places.get(_words(heading.title), [])
        following = bisect_left(found, (after[0], after[2], 0))
        if following < len(found):
            index, offset, end = after = found[following]
            placed[index].append(Heading(offset, end, heading.level, heading.title))
    return [Page(page.number, page.text, headings) for page, headings in zip(pages, placed, strict=True)]


def plain_title(markdown: str) -> str:
    """One line of Markdown as it reads: without emphasis, links and escapes."""
    text = _LINK.sub(r"\1", markdown)
    text = _MARKS.sub(r"\2", text)
    return " ".join(_ESCAPED.sub(r"\1", text).split())


def _scan(text: str, fence: str) -> tuple[list[Heading], str]:
    """The headings, and the mark of the code that is still open at the end; `fence` is the one open at the start."""
    found: list[Heading] = []
    before = previous = ""  # the two lines above
    offset = previous_offset = 0
    for line in text.splitlines(keepends=True):
        bare = line.rstrip()
        if fence:
            if bare.strip().startswith(fence) and not bare.strip().strip(fence[0]):
                fence = ""
        elif opened := _FENCE.match(bare):
            fence = opened[1]
        elif len(bare) <= MAX_LINE_CHARS and (marked := _ATX.match(bare)):
            found += _heading(offset, offset + len(line), len(marked[1]), _unclosed(marked[2] or ""))
        elif (under := _UNDERLINE.match(bare)) and not before.strip() and _may_be_underlined(previous):
            level = 1 if under[1][0] == "=" else 2
            found += _heading(previous_offset, offset + len(line), level, previous)
        before, previous, previous_offset = previous, bare, offset
        offset += len(line)
    return found, fence


def _unclosed(title: str) -> str:
    """A title without the # that may close it, which stand apart."""
    inner = title.rstrip("#")
    return title if inner and not inner[-1].isspace() else inner


def _heading(offset: int, end: int, level: int, markdown: str) -> Iterator[Heading]:
    title = plain_title(markdown)
    if any(map(str.isalnum, title)) and len(title) <= MAX_TITLE_CHARS:
        yield Heading(offset, end, level, title)


def _may_be_underlined(line: str) -> bool:
    return 0 < len(line) <= MAX_LINE_CHARS and "|" not in line and not line.lstrip().startswith((">", "-", "#"))


def _line_groups(text: str) -> Iterator[tuple[int, int, str]]:
    lines = []
    offset = 0
    for line in text.splitlines(keepends=True):
        # A long line begins no heading, and would only be kept in memory.
        end = offset + len(line)
        lines.append((offset, end, _words(line) if len(line) <= MAX_TITLE_CHARS else ""))
        offset = end
    for first, (start, _, words) in enumerate(lines):
        group = ""
        for _, end, more in lines[first : first + MAX_PDF_HEADING_LINES]:
            if not words or not more or len(group) + len(more) > MAX_TITLE_CHARS:
                break
            group += more
            yield start, end, group


def _words(text: str) -> str:
    # Without spaces: those at a line's end and between words in large type differ between the two forms.
    return "".join(text.split())
