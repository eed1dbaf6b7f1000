"""A /dev/shm of the job's own, where the worker may mount: bounded, counted as the job's, gone with its last process.

In the one that all share, a file that is written and closed is memory that no reading of processes shows, and it stays
until somebody removes it.
"""

import ctypes
import os
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from pools.capabilities import SYS_ADMIN, has_capability

FOLDER = "/dev/shm"  # noqa: S108
_CLONE_NEWNS = 0x20000  # <linux/sched.h>
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_SLAVE = 2, 4, 1 << 14, 1 << 19  # <linux/mount.h>
_FILES = 10_000  # an empty one is a KiB of the kernel's own memory, which no size bounds

_libc = ctypes.CDLL(None, use_errno=True)
_unshare, _mount = _libc.unshare, _libc.mount  # looked up once in the template, and not in every child


def is_available() -> bool:
    """Whether one can be had here: tried in a thread, since a container may refuse what its capabilities allow."""
    if not has_capability(SYS_ADMIN) or not Path(FOLDER).is_dir() or Path(FOLDER).is_symlink():
        return False
    refused: list[OSError] = []

    def attempt() -> None:
        try:
            mount_own(1)
        except OSError as error:
            refused.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return not refused


def mount_own(size_mb: int) -> None:
    """Give this thread, and what it starts, a view of the mounts with an empty /dev/shm. Raises `OSError`."""
    _check(_unshare(_CLONE_NEWNS))
    # What the host mounts and unmounts from now on is still seen, and nothing that is mounted here is seen there.
    _check(_mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))
    options = f"size={size_mb}m,nr_inodes={_FILES},mode=1777".encode()
    _check(_mount(b"oomph", FOLDER.encode(), b"tmpfs", ctypes.c_ulong(_MS_NOSUID | _MS_NODEV), options))


def own_kb(pids: Collection[int]) -> int:
    """KiB that lie in the one that these processes have of their own; 0 where that is the one that all share."""
    for pid in pids:
        with suppress(OSError):  # it has ended, or there is none
            folder = f"/proc/{pid}/root{FOLDER}"
            if os.stat(folder).st_dev == os.stat(FOLDER).st_dev:  # noqa: PTH116
                return 0
            sizes = os.statvfs(folder)
            return (sizes.f_blocks - sizes.f_bfree) * sizes.f_frsize // 1024
    return 0


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{FOLDER} of its own: {os.strerror(number)}")
