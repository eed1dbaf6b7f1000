"""What a tree's open files hold that no other reading shows: memory that is mapped nowhere, disk that no name leads to.

Of a /dev/shm of the job's own, all that lies there counts, open or not.

Threads usually share one table of descriptors; one that has a table of its own is looked at by itself. What is on its
way through a socket is in no table and is not seen: only a cgroup leaf counts that.
"""

import ctypes
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pools.shm import own_kb

# kcmp(2) tells whether two threads share something; there is no other cheap way to know.
_SYS_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272}.get(os.uname().machine)
_KCMP_FILES = 2  # <linux/kcmp.h>
_SHARED = 0

_libc = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """In KiB."""

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
        for folder in (folder for pid in pids for folder in _tables(pid)):
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


def _tables(pid: int) -> Iterator[str]:
    """The folders in /proc of its tables of descriptors, those that threads share once.

    Where the kernel does not tell what is shared, only that of the main thread.
    """
    yield f"/proc/{pid}/fd"
    if _SYS_KCMP is None:
        return
    with suppress(OSError):
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            if thread != pid and _libc.syscall(_SYS_KCMP, pid, thread, _KCMP_FILES, 0, 0) > _SHARED:
                yield f"/proc/{pid}/task/{thread}/fd"
