"""What the kernel says in /proc and in cgroup files: pure parsers of its text, and the one reader.

Sizes are KiB unless a name says otherwise. A key that the kernel does not print is None, never zero: "not readable"
and "nothing happened" lead to different verdicts.
"""

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_READ_BYTES = 1 << 16
_MEMORY = re.compile(r"^(VmHWM|RssAnon|RssShmem|VmSwap|VmData|VmPTE):\s+(\d+) kB$", re.MULTILINE)

DEAD_STATES = frozenset("ZX")  # a zombie answers kill(pid, 0), so liveness is read from the state


def slurp(path: str) -> str:
    """The text of a small file. A third of the time of `Path.read_text`, and the watch reads hundreds a second."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, _READ_BYTES)
        # However much is asked for, the kernel gives what it wrote into a page: of a long list only the beginning.
        while more := os.read(descriptor, _READ_BYTES):
            data += more
    finally:
        os.close(descriptor)
    return data.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of /proc/PID/stat. `start` (clock ticks since boot) tells a process from a later one of the same pid."""

    pid: int
    state: str
    parent: int
    session: int
    threads: int
    start: int

    @property
    def is_dead(self) -> bool:
        """The state is that of the first thread, which may have ended by itself: the others then run on."""
        return self.state in DEAD_STATES and self.threads <= 1


def parse_stat(text: str) -> ProcessStat:
    """Parse /proc/PID/stat. The name in parentheses may itself hold spaces and parentheses."""
    pid, _, rest = text.partition(" (")
    fields = rest.rpartition(") ")[2].split()
    return ProcessStat(
        pid=int(pid),
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        threads=int(fields[17]),
        start=int(fields[19]),
    )


def count_threads(pids: Iterable[int]) -> int:
    """How many threads these processes have, as the links of their task folders tell: cheaper than any reading."""
    count = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            count += Path(f"/proc/{pid}/task").stat().st_nlink - 2
    return count


def parse_sizes(text: str) -> dict[str, int]:
    """The `Name:  123 kB` lines of /proc/PID/status, /proc/PID/smaps_rollup or /proc/meminfo."""
    return {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}


def parse_memory(text: str) -> dict[str, int]:
    """The lines of /proc/PID/status that a child's measuring needs, and no others: it reads a dozen a second."""
    return {name: int(size) for name, size in _MEMORY.findall(text)}


def parse_counter(text: str, name: str) -> int | None:
    """The line `name 123` of /proc/vmstat, of v2 memory.events or of v1 memory.oom_control."""
    found = re.search(rf"^{re.escape(name)} (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def parse_hard_limit(text: str, name: str) -> int | None:
    """The hard limit called `name` in /proc/PID/limits; None where it is unlimited."""
    found = re.search(rf"^{re.escape(name)}\s+\S+\s+(\S+)", text, re.MULTILINE)
    return int(found[1]) if found and found[1] != "unlimited" else None


def memory_cgroup_folder(cgroup_text: str, mountinfo_text: str) -> tuple[int, PurePosixPath] | None:
    """The version and the folder of the memory cgroup that /proc/PID/cgroup and /proc/PID/mountinfo describe."""
    paths = _cgroup_paths(cgroup_text)
    v1 = next((path for controllers, path in paths.items() if "memory" in controllers.split(",")), None)
    if v1 is None:
        folder = cgroup2_folder(cgroup_text, mountinfo_text)
        return None if folder is None else (2, folder)
    folder = _mounted(v1, mountinfo_text, lambda kind, options: kind == "cgroup" and "memory" in options.split(","))
    return None if folder is None else (1, folder)


def cgroup2_folder(cgroup_text: str, mountinfo_text: str) -> PurePosixPath | None:
    """The folder of the cgroup v2, which may be mounted beside v1."""
    path = _cgroup_paths(cgroup_text).get("")
    return None if path is None else _mounted(path, mountinfo_text, lambda kind, _: kind == "cgroup2")


def _cgroup_paths(cgroup_text: str) -> dict[str, str]:
    return {controllers: path for _, controllers, path in (line.split(":", 2) for line in cgroup_text.splitlines())}


def _mounted(path: str, mountinfo_text: str, is_it: Callable[[str, str], bool]) -> PurePosixPath | None:
    for line in mountinfo_text.splitlines():
        mount, _, source = line.partition(" - ")
        root, mount_point = mount.split()[3:5]
        kind, _, options = source.split(" ", 2)
        if not is_it(kind, options):
            continue
        inside = PurePosixPath(path)
        # In a container the mount may show only the part of the tree from `root` down.
        if inside.is_relative_to(root):
            inside = inside.relative_to(root)
        return PurePosixPath(mount_point) / str(inside).lstrip("/")
    return None
