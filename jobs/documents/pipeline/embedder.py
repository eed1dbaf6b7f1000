"""What every model is asked for, wherever it runs."""

from collections.abc import Sequence
from typing import Protocol

Vector = Sequence[float]

BATCH_SIZE = 64  # texts in one request
TIMEOUT_SECONDS = 60  # for one answer
RETRIES = 4
MAX_DIMENSIONS = 4_000  # of a vector that pgvector can index


class Embedder(Protocol):
    """A model. `name` is stored with its vectors; `batch_size` is how many texts are best given at once."""

    @property
    def name(self) -> str: ...
    @property
    def batch_size(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """A vector for each text, in order, all of the same dimensions.

        Raises `EmbeddingRefused` where no further attempt can help, `EmbeddingError` where one may.
        """
        ...
