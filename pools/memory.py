"""Limits and readings of memory: what a child may use, what its tree uses, and what the OOM killer has done.

RLIMIT_DATA and not RLIMIT_AS: it counts memory that a process can write to, not address space that it reserves.
It is relative to what the child has at its gate, since that is the template's and shared with it.
"""

import resource
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pools.procfs import memory_cgroup_folder, parse_counter, parse_sizes

MIB = 1 << 20
# What the error path may use on top of the limit that was just hit: a traceback with its source lines, a frame.
ERROR_PATH_MB = 64
RESERVE_BYTES = 2 * MIB  # freed first, so that even the call which lifts the limit finds memory
# Readings kept to look back at. The window must be longer than the time from the kernel's kill to our reading, and
# short, so that it covers few other kills. It is counted in readings and not in seconds: the loop takes them, so a
# blocked loop, which sees a death late, has not moved the window either.
WINDOW_READINGS = 3
NEAR_LIMIT = 0.9  # from here on the cheap reading, which counts shared pages more than once, is checked exactly


def limit_this_process(memory_mb: int) -> Callable[[], None]:
    """Cap what this process may allocate from now on; return what lifts the cap for the error path."""
    now_kb = parse_sizes(Path("/proc/self/status").read_text())["VmData"]
    soft = now_kb * 1024 + memory_mb * MIB
    hard = soft + ERROR_PATH_MB * MIB
    _, inherited = resource.getrlimit(resource.RLIMIT_DATA)
    if inherited != resource.RLIM_INFINITY:
        soft, hard = min(soft, inherited), min(hard, inherited)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def reserve() -> bytearray:
    """Memory to give back when none is left. Zeroed, so its pages are only address space until then."""
    return bytearray(RESERVE_BYTES)


@dataclass(frozen=True, slots=True)
class OomCounters:
    """How many processes the kernel's OOM killer has killed: in the job's own cgroup, in ours, on the host.

    None where the kernel does not say.
    """

    job: int | None = None
    own: int | None = None
    host: int | None = None


class OomWatch:
    """Reads the OOM counters, and remembers how they stood a few readings ago."""

    def __init__(self) -> None:
        self._own_file = _own_counter_file()
        self._readings: deque[OomCounters] = deque(maxlen=WINDOW_READINGS)
        self._kills: deque[int] = deque(maxlen=WINDOW_READINGS)

    @property
    def blind_to(self) -> list[str]:
        """What cannot be read here, for one line at start."""
        now = self.read()
        return [
            name
            for name, value in (("this worker's memory cgroup", now.own), ("/proc/vmstat", now.host))
            if value is None
        ]

    def read(self) -> OomCounters:
        own = None if self._own_file is None else _counter(self._own_file)
        return OomCounters(own=own, host=_counter(Path("/proc/vmstat")))

    def tick(self) -> None:
        """Once a second, on the loop."""
        self._readings.append(self.read())
        self._kills.append(0)

    def before(self) -> OomCounters:
        """The oldest reading of the window."""
        return self._readings[0]

    def count_unexplained_kill(self) -> int:
        """Note a SIGKILL that we did not send; return how many of them the window holds, with this one."""
        self._kills[-1] += 1
        return sum(self._kills)


def _own_counter_file() -> Path | None:
    try:
        found = memory_cgroup_folder(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    except OSError:
        return None
    if found is None:
        return None
    version, folder = found
    return Path(folder, "memory.events" if version == 2 else "memory.oom_control")


def _counter(path: Path) -> int | None:
    try:
        return parse_counter(path.read_text(), "oom_kill")
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a child has from the template at its gate, in KiB: by the cheap reading, by the exact one, at its peak."""

    cheap: int = 0
    exact: int = 0
    peak: int = 0

    @classmethod
    def of(cls, pid: int) -> "Baseline":
        return cls(_cheap_kb(pid), _exact_kb(pid), _sizes(pid, "status").get("VmHWM", 0))


def tree_mb(pids: Iterable[int], baseline: Baseline, limit_mb: int) -> float:
    """MiB that a job's processes use together beyond the baseline: private, shared and swapped memory.

    Blocks for the time of reading /proc: for a worker thread.
    """
    members = list(pids)
    cheap = max(0, sum(map(_cheap_kb, members)) - baseline.cheap) / 1024
    if cheap <= NEAR_LIMIT * limit_mb:
        return cheap
    # A page of the template that the child has written to counts as its own in the exact reading, and not in the
    # cheap one nor against RLIMIT_DATA; a page that helpers share counts for each in the cheap one.
    return min(cheap, max(0, sum(map(_exact_kb, members)) - baseline.exact) / 1024)


def _cheap_kb(pid: int) -> int:
    sizes = _sizes(pid, "status")
    return sum(sizes.get(name, 0) for name in ("RssAnon", "RssShmem", "VmSwap"))


def _exact_kb(pid: int) -> int:
    # Each page counts for each process by its share, so pages that forked helpers share count once in the sum.
    sizes = _sizes(pid, "smaps_rollup")
    return sum(sizes.get(name, 0) for name in ("Pss_Anon", "Pss_Shmem", "SwapPss"))


def _sizes(pid: int, name: str) -> dict[str, int]:
    try:
        return parse_sizes(Path(f"/proc/{pid}/{name}").read_text())
    except OSError:  # it has ended in the meantime
        return {}
