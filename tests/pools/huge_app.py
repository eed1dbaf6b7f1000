"""An app beside memory that it has filled, and some that it has hardly begun to use, only read, or freed."""

import json
import mmap
from pathlib import Path

from jobs import App, Handler
from pools.procfs import parse_sizes
from tests.pools.handlers_app import MIB, SYNC, Recipe, Report

FULL_MB, HOLLOW_MB, READ_MB, FREED_MB = 64, 64, 64, 16
full = mmap.mmap(-1, FULL_MB * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for _ in range(FULL_MB):
    full.write(b"x" * MIB)
hollow = mmap.mmap(-1, HOLLOW_MB * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for place in range(0, HOLLOW_MB * MIB, MIB):
    hollow[place] = 1
read = mmap.mmap(-1, READ_MB * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
read.write(b"x" * 4 * MIB)
assert not any(read[4 * MIB :: mmap.PAGESIZE])
freed = mmap.mmap(-1, FREED_MB * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
freed.madvise(mmap.MADV_DONTFORK)  # so that it is a mapping of its own, as an allocator's is
freed.write(b"x" * FREED_MB * MIB)
freed.madvise(mmap.MADV_FREE)


def _private_kb() -> int:
    return parse_sizes(Path("/proc/self/smaps_rollup").read_text())["Private_Dirty"]


def write(payload: Recipe) -> Report:
    """Write a byte to each MiB of what is full."""
    before = _private_kb()
    for place in range(0, FULL_MB * MIB, MIB):
        full[place] = 1
    return Report(text=json.dumps({"copied kB": _private_kb() - before}))


app = App([Handler(SYNC, write)])
