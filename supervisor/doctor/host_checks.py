"""What readings of this host mean for the children of the pool `ingest`. Pure; sizes are MiB unless a name says KB."""

from collections.abc import Mapping

from pools.enclosure import OOM_SCORE_RAISE
from supervisor.doctor.findings import Finding, error, ok, warning
from supervisor.settings import Settings, SettingsError
from supervisor.sizing import check_kinds, check_template, choose_slots

SIGNAL_SCOPES_ABI = 6  # of Landlock, in Linux 6.12
DESCRIPTORS_OF_A_WORKER = 200  # its connections, its loops, a hundred agents with a socket each
DESCRIPTORS_OF_A_CHILD = 8  # on the worker's side: job socket, pipe, pidfd, and what is read of it in /proc
MOST_OOM_SCORE = 1000
NO_OVERCOMMIT = 2  # vm.overcommit_memory: what is promised counts, not what is used
SWAPPED_SHARE = 0.5  # of the swap; beyond it a host has less memory than its work needs


def kernel(release: str, refusal: str | None) -> Finding:
    """`refusal` is why children cannot be owned by pidfd here, if so."""
    if refusal:
        return error("kernel", f"Linux {release}: {refusal}", "Run the worker where that is so, or without `ingest`.")
    return ok("kernel", f"Linux {release}; children are owned by pidfd")


def subreaper(refusal: str | None) -> Finding:
    if refusal:
        return error("subreaper", refusal, "Allow prctl in the seccomp profile of the container.")
    return ok("subreaper", "what a job leaves behind becomes the worker's child")


def forks(why_twice: str) -> Finding:
    """`why_twice` is why each child costs two forks, or empty."""
    if why_twice:
        return ok("fork", f"two forks a child, which cost up to half more, because {why_twice}")
    return ok("fork", "one clone(2) with CLONE_PARENT a child")


def overcommit(mode: int, sizes_kb: Mapping[str, int], child_mb: int) -> Finding:
    """`sizes_kb` are those of /proc/meminfo, `child_mb` is the limit of one child."""
    name = "overcommit"
    if mode != NO_OVERCOMMIT:
        return ok(name, f"vm.overcommit_memory={mode}: memory counts when it is used")
    free_mb = (sizes_kb["CommitLimit"] - sizes_kb["Committed_AS"]) // 1024
    found = f"vm.overcommit_memory=2, {max(free_mb, 0):,} MB can still be promised"
    if free_mb < child_mb:
        return error(
            name,
            f"{found}, less than the {child_mb:,} MB of one child",
            "Births and allocations fail although memory is free: add swap, raise vm.overcommit_ratio, or set "
            "vm.overcommit_memory=0.",
        )
    return warning(
        name,
        found,
        "A fork is promised all that the template may write to: keep this well above slots x limit, or set "
        "vm.overcommit_memory=0.",
    )


def swap(sizes_kb: Mapping[str, int]) -> Finding:
    name, total, free = "swap", sizes_kb["SwapTotal"] // 1024, sizes_kb["SwapFree"] // 1024
    if total == 0:
        return ok(name, "none")
    found = f"{total - free:,} of {total:,} MB in use"
    if total - free > SWAPPED_SHARE * total:
        return warning(
            name,
            found,
            "Jobs that are swapped out run into their time instead of their limit: lower WORKER_INGEST_BUDGET_MB, or "
            "find out what else fills this host.",
        )
    return ok(name, f"{found}; what a child has there counts as its memory")


def oom_score(own: int) -> Finding:
    """`own` is the oom_score_adj that the worker would have, and its children start from."""
    name, child = "oom_score_adj", min(MOST_OOM_SCORE, own + OOM_SCORE_RAISE)
    found = f"{own}, so {child} for a child"
    if child - own < OOM_SCORE_RAISE:
        return warning(
            name,
            found,
            "When memory is short, the kernel may take the worker before its children: start it with a lower one "
            "(systemd: OOMScoreAdjust=0; Kubernetes: request memory).",
        )
    if child <= 0:
        return warning(
            name,
            found,
            "When memory is short, the kernel takes others, such as PostgreSQL, before a child: start the worker with "
            f"more than {-OOM_SCORE_RAISE}.",
        )
    return ok(name, f"{found}: the kernel takes children first")


def landlock(abi: int, refusal: str | None) -> Finding:
    """`refusal` is why the paths that the settings name cannot be kept to, if so."""
    name, found = "Landlock", f"ABI {abi}" if abi else "missing or switched off"
    if refusal:
        return error(name, f"{found}: {refusal}", "A worker with these settings does not start.")
    if abi < SIGNAL_SCOPES_ABI:
        return warning(
            name,
            found,
            "A job's signals reach the worker and other jobs of its user: use Linux 6.12 or newer with `landlock` in "
            "the boot option lsm=, or set WORKER_INGEST_USER.",
        )
    return ok(name, f"{found}: signals stay inside a job, paths can be restricted")


def seccomp(*, available: bool, machine: str) -> Finding:
    if available:
        return ok("seccomp", "a job changes limits and scheduling of itself only, and mounts nothing")
    return warning(
        "seccomp",
        f"no filter here ({machine})",
        "A job can lower the limits of the worker and of other jobs: use x86-64 or arm64 and a kernel with "
        "CONFIG_SECCOMP_FILTER.",
    )


def user(wanted: str, *, is_root: bool, refusal: str | None) -> Finding:
    """`refusal` is why jobs cannot run as the user that is wanted, if so."""
    if refusal:
        return error("user", refusal, "A worker with this setting does not start.")
    if wanted:
        return ok("user", f"jobs run as {wanted}")
    if is_root:
        return warning(
            "user", "jobs run as root", "Set WORKER_INGEST_USER, or start the worker as a user that is not root."
        )
    return ok("user", "jobs run as the worker's own user, which is not root")


def open_files(soft: int | None, hard: int | None, slots: int, wanted: int) -> Finding:
    """RLIMIT_NOFILE, None for unlimited. `wanted` is what a process of a job may have open."""
    name, needed = "open files", DESCRIPTORS_OF_A_WORKER + slots * DESCRIPTORS_OF_A_CHILD
    found = f"soft {told_limit(soft)}, hard {told_limit(hard)}"
    if soft is not None and soft < needed:
        return warning(
            name,
            f"{found}; a worker with {slots} children may need {needed:,}",
            "Raise the soft limit (ulimit -n; systemd: LimitNOFILE=).",
        )
    if hard is not None and hard < wanted:
        return warning(
            name,
            f"{found}; WORKER_INGEST_OPEN_FILES={wanted} becomes {hard}",
            "Raise the hard limit (systemd: LimitNOFILE=), or lower the setting.",
        )
    return ok(name, found)


def processes(hard: int | None, wanted: int, slots: int) -> Finding:
    """RLIMIT_NPROC, None for unlimited. The kernel counts the threads of a user, in all its jobs."""
    name, needed = "processes", wanted * slots
    if hard is not None and hard < needed:
        return warning(
            name,
            f"at most {hard:,} for this user; {slots} children of WORKER_INGEST_PROCESSES={wanted} may need {needed:,}",
            "Raise the limit (ulimit -u; systemd: LimitNPROC=), or lower the setting: one job can otherwise keep "
            "others from being born.",
        )
    return ok(name, "unlimited" if hard is None else f"at most {hard:,} for this user")


def resident_limit(*, marks_are_owned: bool) -> Finding:
    """RLIMIT_RSS, which does nothing in Linux but carry the mark of a job."""
    if marks_are_owned:
        return ok("marks", "RLIMIT_RSS is free to carry the mark by which a job's processes are found")
    return warning(
        "marks",
        "RLIMIT_RSS is limited (ulimit -m)",
        "What a killed worker leaves behind cannot be told from others by the next one: start it without that limit.",
    )


def told_limit(limit: int | None) -> str:
    return "unlimited" if limit is None else f"{limit:,}"


def memory(
    settings: Settings,
    memory_by_kind: Mapping[str, int | None],
    *,
    cores: int,
    available_mb: int,
    host_mb: int,
    template_mb: float | None,
) -> Finding:
    """Slots x limit against what there is, as a worker reckons it.

    `available_mb` is what the settings give to all children, `host_mb` what this host has for them. `template_mb` None:
    no app was loaded.
    """
    name, limit_mb = "memory", settings.worker_ingest_memory_mb
    try:
        check_kinds(memory_by_kind, available_mb)
        slots = choose_slots(settings.worker_ingest_concurrency, limit_mb, cores, available_mb)
        if template_mb is not None:
            check_template(limit_mb, template_mb)
    except SettingsError as refusal:
        return error(name, str(refusal), "A worker with these settings does not start.")
    found = f"{slots} children x {limit_mb:,} MB = {slots * limit_mb:,} of {available_mb:,} MB"
    if slots * limit_mb > host_mb:
        return warning(
            name,
            f"{found}, of which this host has {max(host_mb, 0):,} MB",
            "The kernel takes a process before a limit holds: lower WORKER_INGEST_BUDGET_MB, or leave it at 0.",
        )
    return ok(name, found if template_mb is None else f"{found}; the template has {template_mb:,.0f} MB")
