"""Search over the chunks of documents whose index is complete: by words, and by meaning where a vector is given."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from jobs.connection import Program, Statement, run
from jobs.documents.question import QuestionVector, vector_text
from jobs.sql import statement

MAX_LIMIT = 1_000
MAX_WORDS_CHARS = 1_000  # of a query: more is a document, not a question
CANDIDATES = 100  # of each list, at least: what stands further down in one would add less than a hundredth to its score

TEXT_ONLY = "Found by words only: no vector of the question was given."
NO_VECTORS = "Found by words only: no document has vectors of the model {model} with {dimensions} dimensions."

_START, _STOP, _SEPARATOR = "\x02", "\x03", "\x1f"  # as in search_documents.sql; no stored text holds them
_QUOTES = str.maketrans("\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}", '""')
# The scripts whose characters background_separated_text takes apart, without their punctuation.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1980-\u19ff\u1a20-\u1aad\u1b00-\u1b7f\u3005-\u3007\u3021-\u312f\u31a0-\u31bf"
    "\u3400-\u4dbf\u4e00-\u9fff\ua980-\ua9ff\uaa60-\uaadf\U0001b000-\U0001b16f\U00020000-\U0003ffff]+"
)
_DASHES = re.compile(r"(?<!\S)-\s*-[-\s]*")  # before a word: they cancel each other out, and more than 32 are an error


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found.

    `matches` are the places in `snippet` to highlight, as (start, end). `page` counts from 1 and is None for formats
    without pages. `rank` orders the hits of one query and means nothing else. `found_by` names the lists that hold the
    chunk: "words", "meaning".
    """

    document_id: UUID
    filename: str
    title: str | None
    position: int
    page: int | None
    heading: str | None
    snippet: str
    matches: list[tuple[int, int]]
    rank: float
    found_by: list[str]


class Hits(list[Hit]):
    """What was found, best first, and how it was looked for.

    `is_hybrid` tells whether meaning was asked as well as words. Where it was not, `note` says why in a sentence.
    """

    def __init__(self, hits: Iterable[Hit], note: str | None) -> None:
        super().__init__(hits)
        self.note = note

    @property
    def is_hybrid(self) -> bool:
        return self.note is None


def search(
    db: Any, words: str, *, limit: int = 10, collection: str | None = None, vector: QuestionVector | None = None
) -> Any:
    """The best chunks for `words`, best first: `Hits`, a list of `Hit`. Await it where `db` is asynchronous.

    `words` reads as in a web search: all of them must occur, `"a phrase"`, `this or that`, `-without`. With `vector`,
    which `embed_question` makes of the same words, chunks that mean something like them are found too, and those that
    both ways find come first. `collection` leaves out the documents of every other. Raises `ValueError` for words that
    are empty or over 1,000 characters, and for a limit outside 1 to 1,000.
    """
    if not words.strip() or len(words) > MAX_WORDS_CHARS or "\0" in words:
        raise ValueError(f"search needs words: 1 to {MAX_WORDS_CHARS:,} characters")
    if not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit={limit}: 1 to {MAX_LIMIT:,} are allowed")
    return run(db, _search(query_text(words), limit, collection, vector))


def query_text(words: str) -> str:
    """`words` for PostgreSQL, where a run of a script without spaces is a phrase of its characters."""
    parts = words.translate(_QUOTES).encode("utf-8", "replace").decode().split('"')
    for index in range(0, len(parts), 2):  # what stands between quotes is a phrase already
        parts[index] = _DASHES.sub(" ", parts[index])
        parts[index] = _UNSPACED.sub(r' "\g<0>" ', parts[index]).replace('- "', '-"')
    return '"'.join(parts)


def _search(words: str, limit: int, collection: str | None, vector: QuestionVector | None) -> Program[Hits]:
    note: str | None = TEXT_ONLY
    if vector is not None:
        asked = {"model": vector.model, "dimensions": len(vector.values)}
        exist = yield Statement(statement("vectors_exist"), asked)
        note = None if exist[0][0] else NO_VECTORS.format(**asked)
    # Fusion needs more of each list than is shown: a chunk far down in both may be among the best of both.
    rows = yield Statement(
        statement("search_documents"),
        {
            "words": words,
            "limit": limit,
            "collection": collection,
            "candidates": limit if note else max(limit, CANDIDATES),
            "model": None if note or vector is None else vector.model,
            "dimensions": None if note or vector is None else len(vector.values),
            "vector": None if note or vector is None else vector_text(vector.values),
        },
    )
    runs = _UNSPACED.findall(words)
    return Hits((_hit(runs, *row) for row in rows), note)


def _hit(
    runs: list[str],
    document_id: Any,
    filename: str,
    title: str | None,
    position: int,
    page: int | None,
    heading: str | None,
    rank: float,
    headline: str,
    found_by: str,
) -> Hit:
    snippet, matches = _marked(" ".join(headline.replace(_SEPARATOR, "").replace(_STOP + _START, "").split()))
    if runs:
        matches = [place for match in matches for place in _whole_runs(snippet, match, runs)]
    return Hit(
        UUID(str(document_id)), filename, title, position, page, heading, snippet, matches, rank, found_by.split(",")
    )


def _whole_runs(snippet: str, match: tuple[int, int], runs: list[str]) -> Iterator[tuple[int, int]]:
    # PostgreSQL marks each word of a phrase wherever it stands: of these scripts, every single character.
    start, end = match
    if not _UNSPACED.fullmatch(snippet, start, end):
        yield match
        return
    for found in re.finditer(f"(?:{'|'.join(map(re.escape, runs))})+", snippet[start:end]):
        yield start + found.start(), start + found.end()


def _marked(text: str) -> tuple[str, list[tuple[int, int]]]:
    plain, matches = "", []
    for part in re.split(f"({_START}[^{_STOP}]*{_STOP})", text):
        if part.startswith(_START):
            matches.append((len(plain), len(plain) + len(part) - 2))
            plain += part[1:-1]
        else:
            plain += part
    return plain, matches
