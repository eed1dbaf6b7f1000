"""Limits and readings of memory: what a child may use, and what its whole tree uses.

RLIMIT_DATA and not RLIMIT_AS: it counts memory that a process can write to, not address space that it reserves.
It is relative to what the child has at its gate, since that is the template's and shared with it. It holds for each
process by itself and not for shared memory, so the tree is also measured:

    cheap    RssAnon + RssShmem + VmSwap + VmPTE of every process, from /proc/PID/status. Never too low, but a page that
             two processes share counts for each.
    exact    Pss_Anon + Pss_Shmem + SwapPss, from smaps_rollup: the kernel walks every page table, some 10 ms a GiB.
             Plus VmPTE: the page tables themselves, of which a job can have many for little memory. Of one process
             alone, what is private is exact already.
    files    what is open in memory (see `pools.open_files`): it need not be mapped anywhere.

What a child has at its gate is the template's, and nobody knows later how much of it the tree still shares with
others: that depends on how many children there are, and on who has copied what. So as much as that is taken off an
exact reading as well, once. A tree of several processes is thus forgiven as much as others hold of what they share.
Admission holds that much for each child (`IngestPool.share_mb`), for the pages that it copies by writing to them.

The larger of shared mappings and such files counts, since most files are mapped as well. So a job that has as much of
the one as of the other can come to twice its limit; only a cgroup leaf is exact there.
"""

import mmap
import os
import resource
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from pools.procfs import parse_memory, parse_sizes, slurp

MIB = 1 << 20
# What the error path may use on top of the limit that was just hit: a traceback with its source lines, a frame.
ERROR_PATH_MB = 64
RESERVE_BYTES = 2 * MIB  # freed first, so that even the call which lifts the limit finds memory
NEAR_LIMIT = 0.9  # from here on the cheap reading, which counts shared pages more than once, is checked exactly
# Between two exact readings of one tree. Not longer, however dear they are: a tree whose pages are read slowly could
# fill the host meanwhile.
EXACT_SECONDS = 1.0
EXACT_SPACING = 20  # times what the last one took, if that is sooner, where a tree seems to be over its limit


@dataclass(frozen=True, slots=True)
class Cap:
    """The limit of this process, in bytes of VmData."""

    start: int
    soft: int
    hard: int

    def is_near(self) -> bool:
        """Whether little is left of it now, so that what was refused was probably memory."""
        try:
            return data_bytes() - self.start > NEAR_LIMIT * (self.soft - self.start)
        except OSError:  # the job has no descriptor left to look with
            return False

    def lift(self) -> None:
        """Give the error path some room."""
        resource.setrlimit(resource.RLIMIT_DATA, (self.hard, self.hard))


def cap_this_process(memory_mb: int) -> Cap:
    """Cap what this process may allocate from now on."""
    start = data_bytes()
    soft = start + memory_mb * MIB
    hard = soft + ERROR_PATH_MB * MIB
    _, inherited = resource.getrlimit(resource.RLIMIT_DATA)
    if inherited != resource.RLIM_INFINITY:
        soft, hard = min(soft, inherited), min(hard, inherited)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    return Cap(start, soft, hard)


def reserve() -> mmap.mmap:
    """Memory to give back, by closing it, when none is left. It counts, although no page of it is ever touched."""
    return mmap.mmap(-1, RESERVE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def data_bytes() -> int:
    """This process's VmData, which RLIMIT_DATA limits."""
    return parse_memory(slurp("/proc/self/status"))["VmData"] * 1024


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a child has at its gate, in KiB: now (private memory, shared with the template or not), and at its peak."""

    held: int = 0
    peak: int = 0

    @classmethod
    def of(cls, pid: int) -> "Baseline":
        """Of a child at its gate. Raises `OSError` where it cannot be read: everything would seem to be the job's."""
        sizes = parse_memory(slurp(f"/proc/{pid}/status"))
        held = sum(sizes.get(name, 0) for name in ("RssAnon", "VmSwap", "VmPTE"))
        return cls(held, sizes.get("VmHWM", 0))


@dataclass
class Gauge:
    """Measures one tree, over its life. Belongs to the thread of the watch."""

    baseline: Baseline
    limit_mb: int
    clock: Callable[[], float] = time.monotonic
    _excess_mb: float = 0.0  # by how much the cheap reading was too high when an exact one was last taken
    _exact_after: float = 0.0
    _exact_at_once: float = 0.0

    def measure(self, pids: Collection[int], shm_kb: int) -> float:
        """MiB that these processes use together beyond the baseline. Blocks on /proc."""
        private = shared = tables = 0
        for pid in pids:
            with suppress(OSError):  # it has ended in the meantime
                its_private, its_shared, its_tables = _cheap_kb(pid)
                private += its_private
                shared += its_shared
                tables += its_tables
        cheap = max(0, private + tables + max(shared, shm_kb) - self.baseline.held) / 1024
        # One process alone shares no page with itself: its cheap reading is as exact as its limit needs.
        enough = NEAR_LIMIT * self.limit_mb if len(pids) > 1 else self.limit_mb
        if cheap <= enough:
            return cheap
        started = self.clock()
        is_over = cheap - self._excess_mb > self.limit_mb
        if started >= (self._exact_at_once if is_over else self._exact_after):
            exact = self._exact_mb(pids, private if len(pids) == 1 else None, shm_kb, tables)
            ended = self.clock()
            self._exact_after = ended + EXACT_SECONDS
            self._exact_at_once = min(self._exact_after, ended + EXACT_SPACING * (ended - started))
            self._excess_mb = 0.0 if exact is None else max(0.0, cheap - exact)
        elif is_over:
            return self.limit_mb  # nothing is killed on an estimate: the next look is exact
        return max(0.0, cheap - self._excess_mb)

    def _exact_mb(self, pids: Collection[int], private: int | None, shm_kb: int, tables: int) -> float | None:
        """None where it cannot be had. `private` is what they have of it, where that is known."""
        total, shared = tables + (private or 0), 0
        for pid in pids:
            try:
                sizes = _exact_sizes(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError:  # another user's, in a container without CAP_SYS_PTRACE: the cheap reading must do
                return None
            if private is None:
                total += sizes.get("Pss_Anon", 0) + sizes.get("SwapPss", 0)
            shared += sizes.get("Pss_Shmem", 0)
        return max(0, total + max(shared, shm_kb) - self.baseline.held) / 1024


def _cheap_kb(pid: int) -> tuple[int, int, int]:
    """Private memory, shared memory and page tables."""
    sizes = parse_memory(slurp(f"/proc/{pid}/status"))
    if "RssAnon" not in sizes:
        sizes = next((other for other in map(parse_memory, _of_threads(pid, "status")) if "RssAnon" in other), sizes)
    return sizes.get("RssAnon", 0) + sizes.get("VmSwap", 0), sizes.get("RssShmem", 0), sizes.get("VmPTE", 0)


def _exact_sizes(pid: int) -> dict[str, int]:
    try:
        return parse_sizes(slurp(f"/proc/{pid}/smaps_rollup"))
    except ProcessLookupError:
        return parse_sizes(next(_of_threads(pid, "smaps_rollup"), ""))


def _of_threads(pid: int, name: str) -> Iterator[str]:
    """A file of the other threads of a process. When its main thread ends, they alone tell what it still holds."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        if thread != str(pid):
            with suppress(FileNotFoundError, ProcessLookupError):
                yield slurp(f"/proc/{pid}/task/{thread}/{name}")
