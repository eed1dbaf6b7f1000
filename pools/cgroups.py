"""One cgroup v2 leaf per child, where a subtree of the hierarchy is ours to use.

    parent (delegated to us)
      +-- oomph-...            one folder per worker; a dead worker's is killed and removed at the next start
            +-- worker         the supervisor and its template, where `parent` is the cgroup they were started in
            +-- job-MARK       one leaf per child: memory.max, pids.max, cgroup.kill

The kernel allows no processes beside controllers in one cgroup, which is why the worker moves to a leaf of its own.
Moving a process does not move its memory: a leaf is charged with what its child allocates from its gate on.
"""

import errno
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pools.identity import Owner
from pools.procfs import cgroup2_folder, parse_counter, slurp

AUTO, OFF = "auto", "off"
REMOVE_SECONDS = 1.0  # the kernel may still be busy with the dead of a leaf; a later sweep takes what is left
_CONTROLLERS = ("memory", "pids")
DELEGATE = f"Delegate={' '.join(_CONTROLLERS)}"  # of a unit of systemd: not `yes`, which hands over all that there are


class CgroupError(Exception):
    """The folder that the operator named cannot be used. The message says why."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The cgroup of one child. Reads answer None where the kernel has no such file."""

    folder: Path

    def add(self, pid: int) -> None:
        """Move a process, before it allocates or forks. Raises `OSError`."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def limit_memory(self, memory_mb: int) -> None:
        """Let the kernel hold the whole leaf to this, where it can. Raises `OSError`."""
        if not (self.folder / "memory.max").exists():
            return
        (self.folder / "memory.max").write_text(str(memory_mb << 20))
        _write(self.folder / "memory.swap.max", "0")
        # All or nothing: a job that loses one of its processes cannot go on, and must not seem to.
        _write(self.folder / "memory.oom.group", "1")

    def kill(self) -> None:
        """SIGKILL every process below at once, also those that fork meanwhile."""
        _write(self.folder / "cgroup.kill", "1")

    def oom_kills(self) -> int | None:
        text = _read(self.folder / "memory.events")
        return None if text is None else parse_counter(text, "oom_kill")

    def peak_mb(self) -> float | None:
        """The most that was charged at once, the page cache included."""
        text = _read(self.folder / "memory.peak")
        return int(text) / (1 << 20) if text is not None and text.strip().isdigit() else None

    def remove(self) -> bool:
        """Remove the leaf with what the job made below it. False where it would not go."""
        return remove_tree(self.folder)


class Leaves:
    """The cgroups of this worker. `controllers` are those that limit each leaf."""

    def __init__(self, folder: Path, controllers: tuple[str, ...]) -> None:
        self.folder = folder
        self.controllers = controllers

    @property
    def are_limited(self) -> bool:
        """The kernel holds a whole job to all of its limits."""
        return self.controllers == _CONTROLLERS

    @classmethod
    def prepare(cls, wanted: str, owner: Owner) -> "tuple[Leaves | None, str]":
        """The cgroups to use, and one phrase about them: what they limit, or why there are none.

        Raises `CgroupError` where a folder was named and cannot be used. Moves this process where it must.
        """
        if wanted == OFF:
            return None, "off (WORKER_INGEST_CGROUP=off)"
        own = own_folder()
        parent = own if wanted == AUTO else Path(wanted)
        if parent is None:
            return None, "off (no cgroup v2 is mounted)"
        if wanted == AUTO and (reason := why_not_ours(parent)):
            return None, f"off ({reason})"
        if wanted != AUTO and not (parent / "cgroup.procs").exists():
            raise CgroupError(f"WORKER_INGEST_CGROUP={wanted} is no cgroup v2: it has no cgroup.procs")
        folder = parent / owner.name
        try:
            folder.mkdir(exist_ok=True)
            if parent == own:
                (folder / "worker").mkdir(exist_ok=True)
                (folder / "worker" / "cgroup.procs").write_text(str(os.getpid()))
        except OSError as error:
            if wanted != AUTO:
                raise CgroupError(f"WORKER_INGEST_CGROUP={wanted} cannot be used: {error.strerror}") from error
            return None, f"off ({parent} cannot be used: {error.strerror})"
        controllers = tuple(name for name in _CONTROLLERS if _enable(parent, name) and _enable(folder, name))
        missing = [name for name in _CONTROLLERS if name not in controllers]
        told = f"{parent}, limiting {' and '.join(controllers)}" if controllers else f"{parent}, for clean-up only"
        return cls(folder, controllers), told + (f" (without controller {' and '.join(missing)})" if missing else "")

    def make(self, name: str, threads: int) -> Leaf:
        """A new leaf for so many threads, which is what the kernel counts there. Raises `OSError`."""
        leaf = Leaf(self.folder / f"job-{name}")
        leaf.folder.mkdir()
        if "pids" in self.controllers:
            (leaf.folder / "pids.max").write_text(str(threads))
        return leaf

    def close(self) -> None:
        """Remove what is empty. The leaf that this process is in stays, for whoever sweeps after its end."""
        for folder in self.folder.glob("job-*"):
            remove_tree(folder)
        with suppress(OSError):
            self.folder.rmdir()


def sweep(wanted: str) -> int:
    """Kill and remove the cgroups of supervisors that live no more; return how many there were."""
    parent = own_folder() if wanted == AUTO else Path(wanted) if wanted != OFF else None
    if parent is None:
        return 0
    swept = 0
    for folder in parent.glob("oomph-*"):
        owner = Owner.of_name(folder.name)
        if owner is not None and owner.is_gone:
            Leaf(folder).kill()
            swept += remove_tree(folder)
    return swept


def own_folder() -> Path | None:
    """The cgroup v2 of this process; None where none is mounted."""
    try:
        found = cgroup2_folder(slurp("/proc/self/cgroup"), slurp("/proc/self/mountinfo"))
    except OSError:
        return None
    # A supervisor that starts a second pool is in its own leaf already.
    folder = None if found is None else Path(found)
    if folder is not None and folder.name == "worker" and Owner.of_name(folder.parent.name) == Owner.this_process():
        return folder.parent.parent
    return folder


def why_not_ours(folder: Path) -> str | None:
    """Why nothing may be made below `folder`; None where it was delegated to us.

    Delegated is what says so (systemd's `Delegate=`), what a container sees as its root, or what was given to a user
    that is not root. Elsewhere root *could* write, but the tree is the service manager's.
    """
    if not (folder / "cgroup.type").exists():
        return "the worker is in the root cgroup, which is not its own"
    if not os.access(folder, os.W_OK) or not os.access(folder / "cgroup.procs", os.W_OK):
        return f"{folder} is not writable"
    said = any(_xattr(folder, name) == b"1" for name in ("user.delegate", "trusted.delegate"))
    is_container_root = slurp("/proc/self/cgroup").splitlines()[-1] == "0::/"
    if said or is_container_root or (os.geteuid() != 0 and folder.stat().st_uid == os.geteuid()):
        return None
    return f"{folder} is not delegated; with systemd, set {DELEGATE}"


def remove_tree(folder: Path) -> bool:
    """Remove a cgroup and all below it, once nothing lives there. Cgroup files vanish with their folder."""
    until = time.monotonic() + REMOVE_SECONDS
    while True:
        try:
            for below in sorted((Path(root) for root, _, _ in os.walk(folder)), reverse=True):
                below.rmdir()
            return True
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until:
                return False
        time.sleep(0.01)


def _enable(folder: Path, controller: str) -> bool:
    if not re.search(rf"\b{controller}\b", _read(folder / "cgroup.controllers") or ""):
        return False
    return _write(folder / "cgroup.subtree_control", f"+{controller}")


def _read(path: Path) -> str | None:
    try:
        return slurp(str(path))
    except OSError:
        return None


def _write(path: Path, text: str) -> bool:
    try:
        # Not write_text: on a kernel without the file, it must not be made.
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, text.encode())
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _xattr(folder: Path, name: str) -> bytes | None:
    try:
        return os.getxattr(folder, name)
    except OSError:
        return None
