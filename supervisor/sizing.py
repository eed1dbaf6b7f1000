"""How many ingest children fit on this host."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from pools.options import IngestOptions, StartMethod
from pools.procfs import memory_cgroup_folder, parse_sizes
from supervisor.settings import Settings, SettingsError

MIB = 1 << 20
RESERVED_MB = 512  # for the supervisor, the template with what it preloads, and the kernel's own needs
LIMIT_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}


def choose_slots(requested: int, memory_mb: int, cores: int, available_mb: int) -> int:
    """The number of ingest children at once; `requested` 0 leaves the choice to processors and memory.

    `memory_mb` is the limit of one child, `available_mb` what all of them may use together. Raises `SettingsError`
    where not even one fits, or where more are requested than fit.
    """
    fitting = available_mb // memory_mb
    if fitting < 1:
        allowed = f"allowed are 1 to {available_mb}" if available_mb >= 1 else "no limit would fit"
        raise SettingsError(
            f"WORKER_INGEST_MEMORY_MB={memory_mb}: not even one ingest child fits into the {max(available_mb, 0):,} MB "
            f"that this host leaves for them ({RESERVED_MB} MB are kept for the worker itself); {allowed}, or leave "
            "`ingest` out of WORKER_POOLS"
        )
    if requested > fitting:
        raise SettingsError(
            f"WORKER_INGEST_CONCURRENCY={requested} children of WORKER_INGEST_MEMORY_MB={memory_mb} would need "
            f"{requested * memory_mb:,} MB of the {available_mb:,} MB that this host leaves for them; allowed are "
            f"1 to {fitting} children, or 0 to let the worker choose"
        )
    return requested or max(1, min(cores, fitting))


def check_kinds(memory_by_kind: Mapping[str, int | None], available_mb: int) -> None:
    """Raise `SettingsError` for a kind whose own `memory_mb` can never fit on this host."""
    for kind, memory_mb in memory_by_kind.items():
        if memory_mb is not None and memory_mb > available_mb:
            raise SettingsError(
                f"kind {kind} asks for memory_mb={memory_mb}; this host leaves {max(available_mb, 0):,} MB for ingest "
                "children, so it could never start here"
            )


def check_template(memory_mb: int, template_mb: float) -> None:
    """Raise `SettingsError` for a child's limit below what the template itself uses: a sign of mixed-up units."""
    if memory_mb < template_mb:
        raise SettingsError(
            f"WORKER_INGEST_MEMORY_MB={memory_mb} is below the {template_mb:.0f} MB that the template itself uses; "
            "raise it or preload less"
        )


def ingest_options(settings: Settings) -> IngestOptions:
    """How children are born and enclosed, by the settings."""
    return IngestOptions(
        start_method=StartMethod(settings.worker_ingest_start_method),
        budget_mb=ingest_budget_mb(settings),
        user=settings.worker_ingest_user,
        read_paths=tuple(settings.worker_ingest_read_paths),
        write_paths=tuple(settings.worker_ingest_write_paths),
        open_files=settings.worker_ingest_open_files,
        processes=settings.worker_ingest_processes,
        scratch_path=settings.worker_ingest_scratch_path,
        scratch_mb=settings.worker_ingest_scratch_mb,
        cgroup=settings.worker_ingest_cgroup,
    )


def ingest_budget_mb(settings: Settings) -> int:
    """MiB that ingest children may use together: as set, or as this host has them. Can be negative on a tiny host."""
    return settings.worker_ingest_budget_mb or available_memory_mb()


def available_memory_mb() -> int:
    """MiB that ingest children may use together: this host's memory, or its cgroup's, less what the worker needs."""
    host = parse_sizes(Path("/proc/meminfo").read_text())["MemTotal"] * 1024
    found = memory_cgroup_folder(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    limits = [host] if found is None else [host, *cgroup_limits(*found)]
    return min(limits) // MIB - RESERVED_MB


def cgroup_limits(version: int, folder: PurePosixPath) -> list[int]:
    """Every limit from this process's cgroup upwards: the lowest one holds."""
    limits = []
    for level in (folder, *folder.parents):
        try:
            text = Path(level, LIMIT_FILES[version]).read_text().strip()
        except OSError:  # above the mount, or the root of the hierarchy
            continue
        if text.isdigit():  # otherwise it says "max"
            limits.append(int(text))
    return limits
