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
    options: IngestOptions,
    scratches: ScratchFolders,
    marks: Marks,
    oom: OomWatch,
    leaves: cgroups.Leaves | None,
    of_leaves: str,
    *,
    has_own_shm: bool,
) -> None:
    """One line: what is off, and what turns it on. All of it is for who debugs. `of_leaves` is a phrase about them."""
    for name in oom.blind_to:
        log.warning("the OOM counter of %s cannot be read: a SIGKILL will often stay unexplained", name)
    if scratches.is_exposed:
        log.warning("a job can keep all others from starting: anybody may rename what is in %s", scratches.parent)
    is_root = os.geteuid() == 0
    in_memory = f"{scratches.parent} is memory, up to {options.scratch_mb} MB a job beyond its limit"
    lacking = (
        (leaves is None, f"a cgroup for each {of_leaves.removeprefix('off ')}"),
        (leaves is not None and not leaves.are_limited, f"a cgroup for each with all limits: it is {of_leaves}"),
        (not options.user and is_root, "a user that is not root (WORKER_INGEST_USER)"),
        (not options.user and not is_root, "a user of their own (WORKER_INGEST_USER, of a worker that is root)"),
        (not options.read_paths, "a list of the paths that they may read (WORKER_INGEST_READ_PATHS)"),
        (not landlock.scopes_signals(), "a bar to signals (needs Landlock, Linux 6.12)"),
        (not seccomp.is_available(), "a bar to limits of other processes (needs seccomp, on x86-64 or arm64)"),
        (not has_own_shm, f"a {shm.FOLDER} for each (needs a worker that may mount)"),
        (not marks.are_owned, "a sweep by mark (this worker runs under a lower `ulimit -m`)"),
        (is_tmpfs(scratches.parent), f"scratch folders on a disk: {in_memory} (WORKER_INGEST_SCRATCH_PATH)"),
    )
    off = [what for is_off, what in lacking if is_off]
    log.info(
        "children are enclosed%s: see docs/explanation/enclosure.md",
        f" without {'; without '.join(off)}; the rest is on" if off else ", and all of it is on",
    )
    told = {
        "start": options.start_method,
        "cgroup leaf per child": of_leaves,
        "user": options.user or "the worker's own",
        "paths": "restricted by Landlock" if options.read_paths else "not restricted",
        "signals": "kept inside the job" if landlock.scopes_signals() else "not kept in",
        "limits, scheduling, marks and mounts": "its own only" if seccomp.is_available() else "not kept in",
        shm.FOLDER: "its own, counted and removed" if has_own_shm else "shared",
        "sweep by mark": "on" if marks.are_owned else "off",
        "scratch": in_memory if is_tmpfs(scratches.parent) else f"{scratches.parent}, on a disk",
    }
    log.debug("what encloses a child: %s", "; ".join(f"{name}: {value}" for name, value in told.items()))
