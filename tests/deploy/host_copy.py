"""A copy of this host's root in which a test may do as it likes, and nothing of it reaches the host.

An overlay over `/` in a mount namespace of its own. What is written lies in memory and is gone with the last process in
it. What this takes, root and overlayfs, is not everywhere: `why_not()` says it.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict

from pools.procfs import slurp
from tests.proxy import SOCKET, Proxy

_MAKE = """
set -e
top=$1
mount -t tmpfs -o mode=755 oomph-test "$top"
mkdir "$top/upper" "$top/work" "$top/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$top/upper,workdir=$top/work" "$top/root"
mount --rbind /dev "$top/root/dev"
mount --rbind /sys "$top/root/sys"
mount -t proc proc "$top/root/proc"
echo made
read -r until_closed
"""


class HostCopy:
    """Made on entering, in the new `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.root = folder / "root"
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _MAKE, "sh", str(folder)],
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

    def share(self, folder: Path, where: str) -> None:
        """Have a folder of the host, and what is written to it, be seen in here as well."""
        script = 'mkdir -p "$2" && mount --bind "$1" "$2"'
        inside = ["nsenter", "--target", str(self._holder.pid), "--mount", "sh", "-c", script, "sh"]
        subprocess.run([*inside, str(folder), f"{self.root}{where}"], check=True, timeout=10)

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
            self.command(*command),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
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
    missing = [name for name in ("unshare", "nsenter", "chroot", "setpriv", "ip") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        return f"only root can copy the host, with {', '.join(missing) or 'what is here'}"
    folder = Path(tempfile.mkdtemp())
    try:
        with HostCopy(folder / "probe") as copy:
            copy.run("true")
    except (OSError, AssertionError) as error:
        return f"the host cannot be copied: {error}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None


def dying_with_us(command: Sequence[str]) -> list[str]:
    """`command`, killed when this process is, with the PID 1 of the namespace that it makes (unshare --kill-child)."""
    return ["setpriv", "--pdeathsig", "KILL", *command]


def first_child(pid: int) -> int | None:
    """The first child of a process: of unshare(1), whoever is PID 1 in the namespace that it has made."""
    try:
        children = slurp(f"/proc/{pid}/task/{pid}/children").split()
    except OSError:
        return None
    return int(children[0]) if children else None


def open_to_all(proxy: Proxy) -> Path:
    """The folder of the proxy's socket, which users of other names may enter from now on."""
    folder = Path(str(conninfo_to_dict(proxy.url)["host"]))
    folder.chmod(0o755)
    (folder / SOCKET).chmod(0o777)
    return folder
