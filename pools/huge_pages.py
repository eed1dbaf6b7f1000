"""Puts memory that is full and stays as it is into huge pages, for the forks of a template.

A fork copies an address for each page that the template has written, and the end of a child takes each away again:
for 4 KiB, or in huge pages for 2 MiB. What a child writes to is copied in small pages all the same.
"""

import ctypes
import mmap
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pools.procfs import slurp

COLLAPSE_SECONDS = 1.0  # for all of it, which is about 1 GB; what is left stays as it was
FULL = 0.9  # of the small pages of one huge page: it takes the memory of all

_MADV_COLLAPSE = 25  # <asm-generic/mman-common.h>, Linux 6.1; where it is not known, nothing happens
_KERNELS = Path("/sys/kernel/mm/transparent_hugepage")
_MAPPING = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 [\s\S]*?^Anonymous: +(\d+) kB$[\s\S]*?^LazyFree: +(\d+) kB$", re.MULTILINE
)
# Of each page a word of 64 bits: <Documentation/admin-guide/mm/pagemap.rst>. Bit 63 says that it is there, bit 56 that
# it is this process's alone: what was only ever read is the kernel's one page of zeros, and takes no memory yet.
_WORD_BYTES = 8
_OWN = 0x81
_NOT_OWN = bytes(byte for byte in range(256) if byte & _OWN != _OWN)

_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def collapse() -> None:
    """Collapse what this process holds, where the kernel can and memory is at hand."""
    with suppress(OSError, ValueError), Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        if "[never]" in (_KERNELS / "enabled").read_text():
            return  # by an operator, whom this call would not heed
        size = int((_KERNELS / "hpage_pmd_size").read_text())
        ends = time.monotonic() + COLLAPSE_SECONDS
        for start in _pieces(slurp("/proc/self/smaps"), size):
            if time.monotonic() > ends:
                break
            if _own_pages(pagemap.fileno(), start, size) * mmap.PAGESIZE >= FULL * size:
                _libc.madvise(start, size, _MADV_COLLAPSE)  # one that it refuses stays in small pages


def _pieces(smaps_text: str, size: int) -> Iterator[int]:
    """Where huge pages could lie: whole ones, in private mappings of no file that hold as much and free none of it."""
    for first, last, anonymous_kb, freed_kb in _MAPPING.findall(smaps_text):
        # What an allocator has freed with MADV_FREE is still there, and the kernel could not take it back any more.
        if int(freed_kb) == 0 and int(anonymous_kb) << 10 >= FULL * size:
            yield from range(-(-int(first, 16) // size) * size, int(last, 16) - size + 1, size)


def _own_pages(pagemap: int, start: int, size: int) -> int:
    words = os.pread(pagemap, size // mmap.PAGESIZE * _WORD_BYTES, start // mmap.PAGESIZE * _WORD_BYTES)
    highest = slice(7, None, _WORD_BYTES) if sys.byteorder == "little" else slice(0, None, _WORD_BYTES)
    return len(words[highest].translate(None, _NOT_OWN))
