"""Vectors on their way from the embedder to the index: in a file, as those of a long document are too many to hold."""

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_FLOAT32 = "f"


class VectorFile:
    """Vectors of one model, as float32 in the machine's order. Iterating reads one at a time, as often as wanted."""

    def __init__(self, path: Path, model: str, dimensions: int, count: int) -> None:
        self.path = path
        self.model = model
        self.dimensions = dimensions
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator["array[float]"]:
        with self.path.open("rb") as file:
            for _ in range(self.count):
                vector: array[float] = array(_FLOAT32)
                vector.fromfile(file, self.dimensions)
                yield vector


class VectorWriter:
    """Writes the vectors that `model` made to `path`."""

    def __init__(self, path: Path, model: str) -> None:
        self.path = path
        self.model = model
        self.dimensions = 0
        self.count = 0
        self._file = path.open("wb")

    def write(self, vector: Sequence[float]) -> None:
        """The next chunk's vector. Raises `ValueError` where it has other dimensions than those before."""
        self.dimensions = self.dimensions or len(vector)
        if len(vector) != self.dimensions:
            raise ValueError(f"a vector of {len(vector)} dimensions after {self.count} of {self.dimensions}")
        array(_FLOAT32, vector).tofile(self._file)
        self.count += 1

    def finished(self) -> VectorFile:
        """What was written, to be read. Nothing can be written after it."""
        self._file.close()
        return VectorFile(self.path, self.model, self.dimensions, self.count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
