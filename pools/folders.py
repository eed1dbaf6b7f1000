"""Folders that a job may have filled, and may still change: how much they hold, and how they are removed.

Each step goes from a descriptor to one name below it and follows no symbolic link. What one call has told of a name is
no longer true at the next, so whatever must be the same folder is reached through its descriptor. No path grows, so
nothing depends on how deep a tree is: to be removed, a folder that was emptied of files is moved to the top.
"""

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HANDLE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Each level holds a descriptor while what is below it is counted, and the supervisor has other uses for them. A path
# of this many folders with names of twenty letters is as long as a path may be.
MAX_DEPTH = 200


class TooDeepError(Exception):
    """A tree has more than `MAX_DEPTH` levels."""


@contextmanager
def opened(name: str, parent: int | None, permissions: int) -> Iterator[int]:
    """A descriptor of a folder, whose owner gets these permissions if they lacked. Raises `OSError`."""
    handle = os.open(name, _HANDLE, dir_fd=parent)
    try:
        _permit(handle, permissions)
        descriptor = os.open(".", FOLDER, dir_fd=handle)
    finally:
        os.close(handle)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _permit(handle: int, permissions: int) -> None:
    mode = os.fstat(handle).st_mode
    if mode & permissions != permissions:
        # fchmod refuses such a handle, and by name it could be a link by now that leads to any file of the host.
        os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(mode) | permissions)  # noqa: PTH101


def bytes_in(path: Path, enough: int) -> int:
    """What the files below it occupy, counted no further than `enough`, and each once however many names it has.

    Raises `TooDeepError`. What somebody moves about meanwhile may be missed, and so may a folder of another user that
    this process may not read.
    """
    count = _Count(enough)
    count.add_folder(str(path), None, 0)
    return count.used


class _Count:
    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._linked: set[tuple[int, int]] = set()
        self.used = 0

    def add_folder(self, name: str, parent: int | None, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise TooDeepError
        with suppress(OSError), opened(name, parent, 0o500) as folder:
            for inner in self._folders_in(folder):
                if self.used > self._enough:
                    return
                self.add_folder(inner, folder, depth + 1)

    def _folders_in(self, folder: int) -> list[str]:
        """Count what is in it; return the folders among that."""
        folders = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):  # it has gone in the meantime
                    info = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode):
                        folders.append(entry.name)
                    elif info.st_nlink > 1:
                        if (info.st_dev, info.st_ino) in self._linked:
                            continue
                        self._linked.add((info.st_dev, info.st_ino))
                    self.used += info.st_blocks * 512
                if self.used > self._enough:
                    break
        return folders


def remove(name: str, parent: int, until: float) -> bool:
    """Remove the folder `name` with all that is in it, until the monotonic clock reads `until` at most.

    False where something is left. Nothing outside of it is touched, even where somebody still changes it.
    """
    try:
        os.rmdir(name, dir_fd=parent)  # most jobs leave nothing
        return True
    except FileNotFoundError:
        return True
    except NotADirectoryError:  # the job put something else in its place
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            return False
    numbers = iter(range(1 << 62))
    try:
        with opened(name, parent, 0o700) as folder:
            # Each round empties the folders that stand at the top of files, and brings those inside them up to it.
            while (names := os.listdir(folder)) and time.monotonic() < until:
                moved = [_empty(folder, inner, numbers, until) for inner in names]
                if not any(moved):
                    return False  # a mount point, an immutable file: no round will get further
        os.rmdir(name, dir_fd=parent)
    except OSError:
        return False
    return True


def _empty(top: int, name: str, numbers: Iterator[int], until: float) -> bool:
    """Remove the entry `name` of `top`, or at least bring up what is inside it. False where neither went."""
    moved = False
    try:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
            os.unlink(name, dir_fd=top)
            return True
        with opened(name, top, 0o700) as folder:
            for inner in os.listdir(folder):
                if time.monotonic() > until:
                    return False
                if not stat.S_ISDIR(os.lstat(inner, dir_fd=folder).st_mode):
                    os.unlink(inner, dir_fd=folder)
                    continue
                with opened(inner, folder, 0o700):  # to be moved, a folder must itself be writable
                    os.rename(inner, _unused(top, numbers), src_dir_fd=folder, dst_dir_fd=top)
                moved = True
        os.rmdir(name, dir_fd=top)
        return True
    except OSError:
        return moved


def _unused(top: int, numbers: Iterator[int]) -> str:
    while True:
        name = f".oomph-{next(numbers)}"
        try:
            os.lstat(name, dir_fd=top)
        except FileNotFoundError:
            return name
