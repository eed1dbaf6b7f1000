"""Limits and readings of memory: what a child may use, and what its whole tree uses.

RLIMIT_DATA and not RLIMIT_AS: it counts memory that a process can write to, not address space that it reserves.
It is relative to what the child has at its gate, since that is the template's and shared with it. It holds for each
process by itself and not for shared memory, so the tree is also measured:

    cheap    RssAnon + RssShmem + VmSwap of every process, from /proc/PID/status. Never too low, but a page that two
             processes share counts for each.
    exact    Pss_Anon + Pss_Shmem + SwapPss, from smaps_rollup: the kernel walks every page table, some 10 ms a GiB.
    files    blocks of memfds and files in /dev/shm that are open: such memory need not be mapped anywhere. Of a
             /dev/shm of the job's own, all that lies there. A memfd that travels through a socket is not seen.

The larger of shared mappings and such files counts, since most files are mapped as well. So a job that has as much of
the one as of the other can come to twice its limit; only a cgroup leaf is exact there.
"""

import os
import resource
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pools.procfs import parse_memory, parse_sizes, slurp
from pools.shm import own_kb

MIB = 1 << 20
# What the error path may use on top of the limit that was just hit: a traceback with its source lines, a frame.
ERROR_PATH_MB = 64
RESERVE_BYTES = 2 * MIB  # freed first, so that even the call which lifts the limit finds memory
NEAR_LIMIT = 0.9  # from here on the cheap reading, which counts shared pages more than once, is checked exactly
EXACT_SECONDS = 1.0  # between two exact readings of one tree, unless it seems to be over its limit
EXACT_SPACING = 20  # and always so many times what the last one took: it may cost a twentieth of a processor


@dataclass(frozen=True, slots=True)
class Cap:
    """The limit of this process, in bytes of VmData."""

    start: int
    soft: int
    hard: int

    def is_near(self) -> bool:
        """Whether little is left of it now, so that what was refused was probably memory."""
        try:
            return _data_bytes() - self.start > NEAR_LIMIT * (self.soft - self.start)
        except OSError:  # the job has no descriptor left to look with
            return False

    def lift(self) -> None:
        """Give the error path some room."""
        resource.setrlimit(resource.RLIMIT_DATA, (self.hard, self.hard))


def cap_this_process(memory_mb: int) -> Cap:
    """Cap what this process may allocate from now on."""
    start = _data_bytes()
    soft = start + memory_mb * MIB
    hard = soft + ERROR_PATH_MB * MIB
    _, inherited = resource.getrlimit(resource.RLIMIT_DATA)
    if inherited != resource.RLIM_INFINITY:
        soft, hard = min(soft, inherited), min(hard, inherited)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    return Cap(start, soft, hard)


def reserve() -> bytearray:
    """Memory to give back when none is left. Zeroed, so its pages are only address space until then."""
    return bytearray(RESERVE_BYTES)


def _data_bytes() -> int:
    return parse_memory(slurp("/proc/self/status"))["VmData"] * 1024


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a child has from the template at its gate, in KiB: by the cheap reading, by the exact one, at its peak."""

    cheap: int = 0
    exact: int = 0
    peak: int = 0

    @classmethod
    def of(cls, pid: int) -> "Baseline":
        """Raises `OSError` where it cannot be read: without it everything would seem to be the job's."""
        sizes = parse_sizes(slurp(f"/proc/{pid}/status"))
        return cls(_cheap_kb(pid)[0], _exact_kb(pid) or 0, sizes.get("VmHWM", 0))


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
        private = shared = 0
        for pid in pids:
            with suppress(OSError):  # it has ended in the meantime
                anon, shmem = _cheap_kb(pid)
                private += anon
                shared += shmem
        cheap = max(0, private + max(shared, shm_kb) - self.baseline.cheap) / 1024
        # One process alone shares no page with itself: its cheap reading is as exact as its limit needs.
        enough = NEAR_LIMIT * self.limit_mb if len(pids) > 1 else self.limit_mb
        if cheap <= enough:
            return cheap
        started = self.clock()
        is_over = cheap - self._excess_mb > self.limit_mb
        if started >= (self._exact_at_once if is_over else self._exact_after):
            exact = self._exact_mb(pids, shm_kb)
            ended = self.clock()
            self._exact_at_once = ended + EXACT_SPACING * (ended - started)
            self._exact_after = max(self._exact_at_once, ended + EXACT_SECONDS)
            self._excess_mb = 0.0 if exact is None else max(0.0, cheap - exact)
        elif is_over:
            return self.limit_mb  # nothing is killed on an estimate: the next look is exact
        return max(0.0, cheap - self._excess_mb)

    def _exact_mb(self, pids: Collection[int], shm_kb: int) -> float | None:
        total = shared = 0
        for pid in pids:
            try:
                sizes = parse_sizes(slurp(f"/proc/{pid}/smaps_rollup"))
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError:  # another user's, in a container without CAP_SYS_PTRACE: the cheap reading must do
                return None
            total += sizes.get("Pss_Anon", 0) + sizes.get("SwapPss", 0)
            shared += sizes.get("Pss_Shmem", 0)
        return max(0, total + max(shared, shm_kb) - self.baseline.exact) / 1024


def _cheap_kb(pid: int) -> tuple[int, int]:
    sizes = parse_memory(slurp(f"/proc/{pid}/status"))
    return sizes.get("RssAnon", 0) + sizes.get("VmSwap", 0), sizes.get("RssShmem", 0)


def _exact_kb(pid: int) -> int | None:
    try:
        sizes = parse_sizes(slurp(f"/proc/{pid}/smaps_rollup"))
    except OSError:
        return None
    return sum(sizes.get(name, 0) for name in ("Pss_Anon", "Pss_Shmem", "SwapPss"))


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """What a tree's open files hold that no other reading shows, in KiB."""

    shm: int = 0  # memfds, and files of its own in /dev/shm
    unlinked: int = 0  # deleted files on the disk of the scratch folder


class OpenFileReader:
    """Looks at what processes have open."""

    def __init__(self) -> None:
        descriptor = os.memfd_create("oomph")
        self._memory = {os.fstat(descriptor).st_dev}
        os.close(descriptor)
        if Path("/dev/shm").is_dir():  # noqa: S108
            self._memory.add(os.stat("/dev/shm").st_dev)  # noqa: S108, PTH116

    def read(self, pids: Collection[int], scratch_device: int, born_at: float) -> OpenFiles:
        """Each file once, however many hold it. `born_at` (Unix time) leaves out what was there before the job."""
        shm: dict[tuple[int, int], int] = {(0, 0): own_kb(pids)}
        unlinked: dict[int, int] = {}
        for pid in pids:
            folder = f"/proc/{pid}/fd"
            with suppress(OSError):  # it has ended, or may not be looked at
                for name in os.listdir(folder):
                    with suppress(OSError):
                        info = os.stat(f"{folder}/{name}")  # noqa: PTH116
                        if info.st_dev in self._memory:
                            if info.st_ctime >= born_at:
                                shm[info.st_dev, info.st_ino] = info.st_blocks // 2
                        elif info.st_dev == scratch_device and info.st_nlink == 0:
                            unlinked[info.st_ino] = info.st_blocks // 2
        return OpenFiles(sum(shm.values()), sum(unlinked.values()))
