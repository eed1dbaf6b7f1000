"""What a search compares with the vectors of chunks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuestionVector:
    """A question as `model` sees it: comparable with the vectors of the same model only."""

    model: str
    values: Sequence[float]


def vector_text(values: Iterable[float]) -> str:
    """How pgvector reads a vector, on a connection of any kind. 9 digits tell every float32 from every other."""
    return "[" + ",".join([format(value, ".9g") for value in values]) + "]"
