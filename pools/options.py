"""How children of the pool `ingest` are born and enclosed; each field is a setting of the worker."""

import os
from dataclasses import dataclass
from enum import StrEnum

THREADS_EACH = 4  # for each process that a job may have, or for each processor where there are more of those


class StartMethod(StrEnum):
    """How a child comes to be."""

    FORK = "fork"  # a copy of the template, with everything imported
    EXEC = "exec"  # a fresh interpreter that loads the app itself: for code that a fork would break


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """Sizes are MiB. The defaults are those of the settings.

    `budget_mb` is what all children may use together; None admits by slots alone. `user` (`name`, or `uid:gid`) needs
    a supervisor that is root. `read_paths` empty means that Landlock restricts no path; else `write_paths` are what
    is writable besides scratch. `scratch_path` empty means the system's folder for temporary files. `cgroup` is
    `auto`, `off` or the folder of a delegated cgroup v2.
    """

    start_method: StartMethod = StartMethod.FORK
    budget_mb: int | None = None
    user: str = ""
    read_paths: tuple[str, ...] = ()
    write_paths: tuple[str, ...] = ()
    open_files: int = 1024
    processes: int = 512
    scratch_path: str = ""
    scratch_mb: int = 2048
    cgroup: str = "auto"

    @property
    def threads(self) -> int:
        """How many threads a job may have in all its processes: room for the pools of several numeric libraries."""
        return THREADS_EACH * max(self.processes, os.cpu_count() or 1)
