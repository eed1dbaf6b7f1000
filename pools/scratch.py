"""A private folder for each job: its working folder and its TMPDIR, bounded in size, gone after the verdict.

All of one worker's lie in one folder that bears the worker's name, so what a dead worker left behind is found and
removed at the next start. Nothing here ever follows a symbolic link, and nothing depends on the depth of a tree: a
folder that was emptied of files is moved to the top, so no path grows.
"""

import errno
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pools.identity import Owner
from pools.procfs import slurp

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folder of one job."""

    path: Path

    def used_mb(self, enough_mb: float) -> float:
        """MiB that its files occupy, counted no further than `enough_mb`. Blocks on the disk."""
        used = 0
        waiting = [self.path]
        while waiting and used <= enough_mb * (1 << 20):
            # It changes while we look, and a hostile job makes it unreadable: what is not seen now is not counted.
            with suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    with suppress(OSError):
                        info = entry.stat(follow_symlinks=False)
                        used += info.st_blocks * 512
                        if stat.S_ISDIR(info.st_mode):
                            waiting.append(Path(entry.path))
        return used / (1 << 20)

    def remove(self, seconds: float) -> bool:
        """Remove it with all that is in it, for `seconds` at most; False where something is left.

        Only once no process of the job lives: who removes a tree that somebody changes can be led out of it.
        """
        return _remove(self.path, time.monotonic() + seconds)


class ScratchFolders:
    """All scratch folders of this worker."""

    def __init__(self, wanted: str, owner: Owner) -> None:
        self.parent = Path(wanted or tempfile.gettempdir())
        self.folder = self.parent / owner.name

    def prepare(self) -> None:
        """Make sure that folders can be made. Raises `OSError`."""
        self.folder.mkdir(mode=0o711, exist_ok=True)

    def make(self, name: str, user: tuple[int, int] | None) -> Scratch:
        """An empty folder that only the job's user can enter, with a name that begins like this. Raises `OSError`."""
        try:
            path = tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder)
        except FileNotFoundError:  # somebody cleans up folders for temporary files
            self.folder.mkdir(mode=0o711)
            path = tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder)
        scratch = Scratch(Path(path))
        if user is not None:
            os.chown(scratch.path, *user)
        return scratch

    def close(self) -> None:
        """Remove what is left."""
        _remove(self.folder, time.monotonic() + 5)

    def sweep(self) -> int:
        """Remove what supervisors that live no more have left; return how many there were."""
        swept = 0
        for folder in self.parent.glob("oomph-*"):
            owner = Owner.of_name(folder.name)
            # In a folder that anybody can write to, only our own are ours to remove.
            if owner is not None and owner.is_gone and _is_ours(folder):
                swept += _remove(folder, time.monotonic() + 60)
        return swept


def _is_ours(folder: Path) -> bool:
    try:
        info = folder.lstat()
    except FileNotFoundError:  # another worker that starts here swept it first
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()


def _remove(top: Path, until: float) -> bool:
    try:
        top.rmdir()  # most jobs leave nothing
        return True
    except FileNotFoundError:
        return True
    except NotADirectoryError:  # the job put something else in its place
        top.unlink(missing_ok=True)
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            return False
    numbers = iter(range(1 << 62))
    try:
        with _Opened(str(top), None) as folder:
            # Each round empties the folders that stand at the top of files, and brings those inside them up to it.
            while (names := os.listdir(folder)) and time.monotonic() < until:
                moved = [_empty(folder, name, numbers, until) for name in names]
                if not any(moved):
                    return False  # a mount point, an immutable file: no round will get further
        top.rmdir()
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
        with _Opened(name, top) as folder:
            for inner in os.listdir(folder):
                if time.monotonic() > until:
                    return False
                if not stat.S_ISDIR(os.lstat(inner, dir_fd=folder).st_mode):
                    os.unlink(inner, dir_fd=folder)
                    continue
                os.chmod(inner, 0o700, dir_fd=folder)  # to be moved, a folder must itself be writable
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


class _Opened:
    """A folder's descriptor, opened whatever its permissions were."""

    def __init__(self, name: str, parent: int | None) -> None:
        os.chmod(name, 0o700, dir_fd=parent)
        self._descriptor = os.open(name, _FOLDER, dir_fd=parent)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def is_tmpfs(path: Path) -> bool:
    """Whether what lies there is memory."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    return any(line.split()[2] == wanted and " - tmpfs " in line for line in slurp("/proc/self/mountinfo").splitlines())
