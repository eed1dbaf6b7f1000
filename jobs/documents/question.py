"""What a search compares with the vectors of chunks."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuestionVector:
    """A question as `model` sees it: comparable with the vectors of the same model only."""

    model: str
    values: Sequence[float]
