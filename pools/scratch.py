"""A private folder for each job: its working folder and its TMPDIR, bounded in size, gone after the verdict.

All of one worker's lie in one folder that bears the worker's name, so what a dead worker left behind is found and
removed at the next start. That name can be guessed, and the folder for temporary files is open to everybody: it is
used only while it is ours alone to write to.
"""

import errno
import os
import secrets
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pools.folders import FOLDER, MAX_DEPTH, TooDeepError, bytes_in, remove
from pools.identity import Owner
from pools.procfs import slurp

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folder of one job."""

    path: Path

    def excess(self, allowed_mb: int, unlinked_mb: float) -> str:
        """What is too much of it, in words; empty where nothing is. Blocks on the disk.

        `unlinked_mb` is held by files that no folder names any more.
        """
        try:
            used_mb = bytes_in(self.path, int((allowed_mb - unlinked_mb) * _MIB)) / _MIB + unlinked_mb
        except TooDeepError:
            return f"its scratch folder held more than {MAX_DEPTH} folders inside each other"
        if used_mb > allowed_mb:
            return f"its scratch folder held {used_mb:.0f} MB of {allowed_mb} MB"
        return ""

    def remove(self, seconds: float) -> bool:
        """Remove it with all that is in it, for `seconds` at most; False where something is left."""
        try:
            parent = os.open(self.path.parent, FOLDER)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            return remove(self.path.name, parent, time.monotonic() + seconds)
        finally:
            os.close(parent)


class ScratchFolders:
    """All scratch folders of this worker."""

    def __init__(self, wanted: str, owner: Owner) -> None:
        self.parent = Path(wanted or tempfile.gettempdir())
        self.folder = self.parent / owner.name

    @property
    def is_exposed(self) -> bool:
        """Whether anybody may put another folder in the place of ours. It is refused then, but so is every job."""
        mode = self.parent.stat().st_mode
        return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX

    def prepare(self) -> None:
        """Make sure that folders can be made. Raises `OSError`."""
        os.close(self._open())

    def make(self, name: str, user: tuple[int, int] | None) -> Scratch:
        """An empty folder that only the job's user can enter, with a name that begins like this. Raises `OSError`."""
        folder = self._open()
        try:
            name = f"{name}-{secrets.token_hex(8)}"
            os.mkdir(name, 0o700, dir_fd=folder)
            if user is not None:
                os.chown(name, *user, dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(folder)
        return Scratch(self.folder / name)

    def _open(self) -> int:
        """A descriptor of the folder, made where it is missing: somebody cleans up folders for temporary files."""
        with suppress(FileExistsError):
            self.folder.mkdir(mode=0o711)
        descriptor = os.open(self.folder, FOLDER)
        if not _is_ours(os.fstat(descriptor)):
            os.close(descriptor)
            raise PermissionError(errno.EPERM, "somebody else can write to it", str(self.folder))
        return descriptor

    def close(self) -> None:
        """Remove what is left."""
        self._remove(self.folder.name, 5)

    def sweep(self) -> int:
        """Remove what supervisors that live no more have left; return how many there were."""
        swept = 0
        for folder in self.parent.glob("oomph-*"):
            owner = Owner.of_name(folder.name)
            if owner is not None and owner.is_gone:
                swept += self._remove(folder.name, 60)
        return swept

    def _remove(self, name: str, seconds: float) -> bool:
        try:
            parent = os.open(self.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            # In a folder that anybody can write to, only our own are ours to remove.
            return _is_ours(os.lstat(name, dir_fd=parent)) and remove(name, parent, time.monotonic() + seconds)
        except FileNotFoundError:  # another worker that starts here swept it first
            return False
        finally:
            os.close(parent)


def _is_ours(info: os.stat_result) -> bool:
    """Whether it is a folder in which nobody else can make or exchange anything."""
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022


def is_tmpfs(path: Path) -> bool:
    """Whether what lies there is memory."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    return any(line.split()[2] == wanted and " - tmpfs " in line for line in slurp("/proc/self/mountinfo").splitlines())
