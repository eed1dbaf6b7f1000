"""What every handler does first: append one record to a file, in about two microseconds, whichever process it is in.

CLOCK_MONOTONIC is one clock for all processes of a host, and a step of the date does not move it.
"""

import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PATH = "BENCH_MARKS"
RECORD = struct.Struct("<qdq")  # 24 bytes: number, moment, pid; one write of them to an O_APPEND file is whole

_descriptor: int | None = None


def mark(number: int) -> None:
    """Note that the handler of job `number` has started."""
    now = time.monotonic()
    global _descriptor
    if _descriptor is None:
        _descriptor = os.open(os.environ[PATH], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(_descriptor, RECORD.pack(number, now, os.getpid()))


@dataclass(frozen=True, slots=True)
class Mark:
    number: int
    at: float  # seconds of CLOCK_MONOTONIC
    pid: int


class WrongResult(Exception):
    """A job was not done, or was done twice: there is no figure then."""


class Marks:
    """The file of one measurement."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(b"")

    def clear(self) -> None:
        """Forget what is written; a process that has the file open goes on at its start."""
        os.truncate(self.path, 0)

    def count(self) -> int:
        """How many handlers have started; looks at the file's size only."""
        return self.path.stat().st_size // RECORD.size

    @staticmethod
    def of(path: Path) -> list[Mark]:
        """What a file holds, in the order in which it was written."""
        return [Mark(*record) for record in RECORD.iter_unpack(path.read_bytes())]

    def require(self, numbers: Sequence[int]) -> list[Mark]:
        """The marks of exactly these jobs, once each, in the order of time. Raises `WrongResult`."""
        marks = sorted(self.of(self.path), key=lambda mark: mark.at)
        seen = [mark.number for mark in marks]
        if sorted(seen) != sorted(numbers):
            missing, twice = set(numbers) - set(seen), len(seen) - len(set(seen))
            raise WrongResult(
                f"{len(numbers)} jobs were to run once each: {len(missing)} did not run, {twice} ran again, "
                f"{len(set(seen) - set(numbers))} were none of them"
            )
        return marks
