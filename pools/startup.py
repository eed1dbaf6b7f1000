"""What a pool does and says before its first child: sweep, check what was asked for, tell what encloses a job."""

import logging
import os
import sys
from pathlib import Path

from pools import cgroups, landlock, seccomp, shm
from pools.frames import UserFrame
from pools.identity import Marks
from pools.leftovers import sweep_processes
from pools.oom import OomWatch
from pools.options import IngestOptions, StartMethod
from pools.process import NotSupported
from pools.scratch import ScratchFolders, is_tmpfs
from pools.user import closed_to

log = logging.getLogger("oomph.ingest")


def sweep(options: IngestOptions, scratches: ScratchFolders) -> None:
    """End and remove what supervisors that live no more have left on this host. Blocks."""
    cull = sweep_processes()
    removed = scratches.sweep()
    leaves = cgroups.sweep(options.cgroup)
    if cull.dead or removed or leaves:
        log.warning(
            "swept what a dead worker left here: %d processes, %d scratch folders, %d cgroups",
            len(cull.dead),
            removed,
            leaves,
        )
    if cull.survivors:
        log.error("processes of a dead worker survive SIGKILL: %s", cull.survivors)


def readable_paths(wanted: tuple[str, ...]) -> list[str] | None:
    """What a job may read; None where nothing is restricted. Raises `NotSupported`."""
    if not wanted:
        return None
    if landlock.abi() == 0:
        raise NotSupported(
            "WORKER_INGEST_READ_PATHS needs Landlock, which this kernel lacks or has switched off (Linux 5.13 or "
            "newer, with `landlock` in the boot option `lsm=`)"
        )
    _require_paths("WORKER_INGEST_READ_PATHS", wanted)
    return [*wanted, *landlock.runtime_paths()]


def writable_paths(options: IngestOptions) -> list[str]:
    """What a job may write to besides its scratch folder, where paths are restricted. Raises `NotSupported`."""
    if options.write_paths and not options.read_paths:
        raise NotSupported(
            "WORKER_INGEST_WRITE_PATHS is set without WORKER_INGEST_READ_PATHS: no path is restricted then; set both, "
            "or neither"
        )
    _require_paths("WORKER_INGEST_WRITE_PATHS", options.write_paths)
    return list(options.write_paths)


def _require_paths(variable: str, wanted: tuple[str, ...]) -> None:
    for path in wanted:
        if not Path(path).is_absolute() or not Path(path).exists():
            raise NotSupported(f"{variable} names {path}, which is no absolute path that exists")


def check_reach(user: UserFrame, app_spec: str, method: StartMethod) -> None:
    """See whether the jobs' user may read the interpreter, its library and the app. Blocks.

    A forked child has what was preloaded, so for it the log says which folder is closed. Raises `NotSupported` for
    one that is executed.
    """
    app = getattr(sys.modules.get(app_spec.partition(":")[0]), "__file__", None)
    files = [Path(each) for each in (os.__file__, __file__, app) if each]
    closed = closed_to(user, [Path(sys.prefix), *(file.absolute().parent for file in files)])
    if not closed:
        return
    told = (
        f"WORKER_INGEST_USER={user.name} may not read {' and '.join(map(str, closed))}, where Python or the app lies; "
        "install both where that user may read"
    )
    if method is StartMethod.EXEC:
        raise NotSupported(told)
    log.warning("%s: jobs can import only what the template has imported", told)


def say_what_encloses(
    options: IngestOptions, scratches: ScratchFolders, marks: Marks, oom: OomWatch, leaves: str, *, has_own_shm: bool
) -> None:
    """One line: what is on, what is off and why."""
    for name in oom.blind_to:
        log.warning("the OOM counter of %s cannot be read: a SIGKILL will often stay unexplained", name)
    told = {
        "start": options.start_method,
        "cgroup leaf per child": leaves,
        "user": options.user or _own_user(),
        "paths": "restricted by Landlock" if options.read_paths else "not restricted (WORKER_INGEST_READ_PATHS)",
        "signals": "kept inside the job" if landlock.scopes_signals() else "not kept in (needs Landlock, Linux 6.12)",
        "limits, scheduling, marks and mounts": (
            "its own only" if seccomp.is_available() else "not kept in (needs seccomp, on x86-64 or arm64)"
        ),
        shm.FOLDER: "its own, counted and removed" if has_own_shm else "shared (its own needs a worker that may mount)",
        "sweep by mark": "on" if marks.are_owned else "off (this worker runs under a lower `ulimit -m`)",
    }
    if is_tmpfs(scratches.parent):
        told["scratch"] = f"{scratches.parent} is memory, up to {options.scratch_mb} MB a job beyond its limit"
    if scratches.is_exposed:
        log.warning("a job can keep all others from starting: anybody may rename what is in %s", scratches.parent)
    log.info("children are enclosed: %s", "; ".join(f"{name}: {value}" for name, value in told.items()))


def _own_user() -> str:
    if os.geteuid() != 0:
        return "the worker's own"
    return "the worker's own, root, to whom most of this host's files belong (WORKER_INGEST_USER)"
