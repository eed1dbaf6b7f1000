"""A small disk of a test's own, which can be filled to the last byte and emptied again."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers.cluster import programs

PIECE = bytes(4096)


class Disk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "held"
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no byte."""
        with self._ballast.open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(PIECE)
            except OSError:
                return

    def empty(self) -> None:
        self._ballast.unlink()


@contextmanager
def new_disk(megabytes: int) -> Iterator[Disk]:
    """A disk in memory, with a folder of the server's user. Skips where this process may not mount one."""
    if os.geteuid() != 0:
        pytest.skip("no small disk to fill: only root may mount one")
    account, _ = programs()
    place = Path(tempfile.mkdtemp(prefix="oomph-disk-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "tmpfs", place], capture_output=True, text=True
    )
    try:
        if mounted.returncode != 0:
            pytest.skip(f"no small disk to fill: {mounted.stderr.strip()}")
        disk = Disk(place)
        disk.folder.mkdir(mode=0o700)
        os.chown(disk.folder, account.uid, account.gid)
        yield disk
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "--lazy", place], check=True)
        place.rmdir()
