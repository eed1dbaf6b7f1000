"""The same app beside 300 MB that it holds when it is loaded, as big models and tables are."""

import mmap

from tests.pools.handlers_app import MIB, app

HELD_MB = 300
held = mmap.mmap(-1, HELD_MB * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for _ in range(HELD_MB):
    held.write(b"x" * MIB)

__all__ = ["app"]
