"""The cgroup of a worker that is started where the doctor is: what it could do there, without doing it."""

import os
from dataclasses import dataclass
from pathlib import Path

from pools.cgroups import AUTO, DELEGATE, OFF, own_folder, why_not_ours
from pools.procfs import memory_cgroup_folder, slurp
from supervisor.doctor.findings import Finding, error, ok, warning

CONTROLLERS = ("memory", "pids")
ADVICE = f"With systemd, set {DELEGATE} in the unit; elsewhere, give the worker a cgroup v2 folder of its own."


@dataclass(frozen=True, slots=True)
class CgroupReading:
    """`wanted` is WORKER_INGEST_CGROUP. `memory_version` is that of the memory controller, None where there is none.

    `refusal` says why no leaf can be made; `controllers` are those that it could have. `group_kill` is the folder whose
    memory.oom.group would end the worker with its child.
    """

    wanted: str
    memory_version: int | None
    folder: str | None
    refusal: str | None
    controllers: tuple[str, ...]
    group_kill: str | None

    @property
    def makes_leaves(self) -> bool:
        return self.wanted != OFF and self.refusal is None


def read_cgroup(wanted: str) -> CgroupReading:
    """Raises `OSError` where /proc cannot be read."""
    found = memory_cgroup_folder(slurp("/proc/self/cgroup"), slurp("/proc/self/mountinfo"))
    own = own_folder()
    folder = own if wanted in (AUTO, OFF) else Path(wanted)
    return CgroupReading(
        wanted=wanted,
        memory_version=None if found is None else found[0],
        folder=None if folder is None else str(folder),
        refusal=_refusal(wanted, folder),
        controllers=() if folder is None else _controllers(folder),
        group_kill=None if own is None else _group_kill(own),
    )


def version(reading: CgroupReading) -> Finding:
    name = "cgroup version"
    if reading.memory_version == 2:
        return ok(name, "2")
    found = "1 for memory" if reading.memory_version else "no memory cgroup is mounted"
    return warning(
        name,
        found,
        "Limits hold by RLIMIT_DATA and a watch, which look at a tree less exactly than the kernel: boot with "
        "systemd.unified_cgroup_hierarchy=1.",
    )


def delegation(reading: CgroupReading) -> Finding:
    name = "cgroup delegation"
    if reading.wanted == OFF:
        return ok(name, "off (WORKER_INGEST_CGROUP)")
    if reading.refusal and reading.wanted != AUTO:
        return error(name, f"WORKER_INGEST_CGROUP={reading.wanted}: {reading.refusal}", ADVICE)
    if reading.refusal:
        return warning(name, f"no leaf per child: {reading.refusal}", ADVICE)
    return ok(name, f"{reading.folder}: a leaf for each child")


def controllers(reading: CgroupReading) -> Finding:
    """Of the leaves, where any can be made."""
    name = "cgroup controllers"
    missing = [controller for controller in CONTROLLERS if controller not in reading.controllers]
    if not missing:
        return ok(name, " ".join(reading.controllers))
    return warning(
        name,
        f"without {' and '.join(missing)}",
        f"The kernel cannot hold a whole job to its limit: delegate these controllers too (systemd: {DELEGATE}).",
    )


def group_kill(reading: CgroupReading) -> Finding:
    name = "memory.oom.group"
    if reading.group_kill is None:
        return ok(name, "not set: the kernel takes one process, not the worker with it")
    return warning(
        name,
        f"1 in {reading.group_kill}",
        "When that cgroup is full, the kernel ends the worker and all its jobs at once: keep WORKER_INGEST_BUDGET_MB "
        "well below its limit, or switch it off (Kubernetes: singleProcessOOMKill; systemd: OOMPolicy=continue).",
    )


def _refusal(wanted: str, folder: Path | None) -> str | None:
    if wanted == OFF:
        return None
    if folder is None:
        return "no cgroup v2 is mounted"
    if wanted == AUTO:
        return why_not_ours(folder)
    if not (folder / "cgroup.procs").exists():
        return "it is no cgroup v2: it has no cgroup.procs"
    return None if os.access(folder, os.W_OK) else "it is not writable"


def _controllers(folder: Path) -> tuple[str, ...]:
    try:
        offered = slurp(str(folder / "cgroup.controllers")).split()
    except OSError:
        return ()
    return tuple(name for name in CONTROLLERS if name in offered)


def _group_kill(own: Path) -> str | None:
    """The first folder from the worker's own upwards that says so: the kernel takes the highest one."""
    for folder in (own, *own.parents):
        try:
            if slurp(str(folder / "memory.oom.group")).strip() == "1":
                return str(folder)
        except OSError:  # above the mount, or the root of the hierarchy
            continue
    return None
