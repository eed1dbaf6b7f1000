"""What the kernel says in /proc and in cgroup files: pure parsers of its text.

Sizes are KiB unless a name says otherwise. A key that the kernel does not print is None, never zero: "not readable"
and "nothing happened" lead to different verdicts.
"""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

DEAD_STATES = frozenset("ZX")  # a zombie answers kill(pid, 0), so liveness is read from the state


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of /proc/PID/stat. `start` (clock ticks since boot) tells a process from a later one of the same pid."""

    pid: int
    state: str
    parent: int
    session: int
    start: int

    @property
    def is_dead(self) -> bool:
        return self.state in DEAD_STATES


def parse_stat(text: str) -> ProcessStat:
    """Parse /proc/PID/stat. The name in parentheses may itself hold spaces and parentheses."""
    pid, _, rest = text.partition(" (")
    fields = rest.rpartition(") ")[2].split()
    return ProcessStat(
        pid=int(pid), state=fields[0], parent=int(fields[1]), session=int(fields[3]), start=int(fields[19])
    )


def parse_sizes(text: str) -> dict[str, int]:
    """The `Name:  123 kB` lines of /proc/PID/status, /proc/PID/smaps_rollup or /proc/meminfo."""
    return {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}


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
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in cgroup_text.splitlines())}
    v1 = next((path for controllers, path in paths.items() if "memory" in controllers.split(",")), None)
    version, path = (1, v1) if v1 is not None else (2, paths.get(""))
    if path is None:
        return None
    for line in mountinfo_text.splitlines():
        mount, _, source = line.partition(" - ")
        root, mount_point = mount.split()[3:5]
        kind, _, options = source.split(" ", 2)
        if not (kind == "cgroup2" if version == 2 else kind == "cgroup" and "memory" in options.split(",")):
            continue
        inside = PurePosixPath(path)
        # In a container the mount may show only the part of the tree from `root` down.
        if inside.is_relative_to(root):
            inside = inside.relative_to(root)
        return version, PurePosixPath(mount_point) / str(inside).lstrip("/")
    return None
