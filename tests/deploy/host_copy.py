"""A copy of this host's root in which a test may do as it likes, and nothing of it reaches the host.

An overlay over `/` in a mount namespace of its own. What is written lies in memory and is gone with the last process in
it. What this takes, root and overlayfs, is not everywhere: `why_not()` says it.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

# An empty folder, and pairs: what of the host is seen where.
_MAKE = """
set -e
top=$1; shift
mount -t tmpfs -o mode=755 oomph-test "$top"
mkdir "$top/upper" "$top/work" "$top/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$top/upper,workdir=$top/work" "$top/root"
mount --rbind /dev "$top/root/dev"
mount --rbind /sys "$top/root/sys"
mount -t proc proc "$top/root/proc"
while [ $# -gt 0 ]; do
    mkdir -p "$top/root$2"
    mount --bind "$1" "$top/root$2"
    shift 2
done
echo made
read -r until_closed
"""


class HostCopy:
    """Made on entering, in the new `folder`. `shared` are folders of the host, and where they are seen."""

    def __init__(self, folder: Path, shared: Mapping[Path, str] = MappingProxyType({})) -> None:
        folder.mkdir()
        self.root = folder / "root"
        pairs = [str(part) for pair in shared.items() for part in pair]
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _MAKE, "sh", str(folder), *pairs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "made\n":
            raise OSError(self._holder.communicate()[1])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holder.communicate("over\n", timeout=10)

    @property
    def visible(self) -> Path:
        """Its root, as the host can read it."""
        return Path(f"/proc/{self._holder.pid}/root{self.root}")

    def command(self, *command: str, unshare: Sequence[str] = ()) -> list[str]:
        """What runs `command` in here; in namespaces of its own, of those that unshare(1) calls so."""
        inside = ["unshare", *unshare, "--root", str(self.root)] if unshare else ["chroot", str(self.root)]
        return ["nsenter", "--target", str(self._holder.pid), "--mount", *inside, *command]

    def run(self, *command: str, seconds: float = 60) -> str:
        """Its output. Raises `CalledProcessError` with what it said, or `TimeoutExpired`."""
        done = subprocess.run(
            self.command(*command), capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """Write a file of the copy, with the folders above it."""
        script = 'mkdir -p "$(dirname "$1")" && cat > "$1"'
        subprocess.run(self.command("sh", "-c", script, "sh", path), input=text, text=True, check=True, timeout=10)


@cache
def why_not() -> str | None:
    """Why no copy can be made here; None where it can."""
    missing = [name for name in ("unshare", "nsenter", "chroot") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        return "only root with unshare, nsenter and chroot can copy the host"
    try:
        folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
        with HostCopy(folder / "probe") as copy:
            copy.run("true")
    except (OSError, AssertionError) as error:
        return f"the host cannot be copied: {error}"
    shutil.rmtree(folder, ignore_errors=True)
    return None
