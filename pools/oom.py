"""The counters of the kernel's OOM killer, as they stood before and after a death.

The kernel counts before it sends its signal, so a counter that covers the child and did not move is proof.
"""

from collections import deque
from dataclasses import dataclass
from pathlib import Path

from pools.procfs import memory_cgroup_folder, parse_counter

# Readings kept to look back at. The window must be longer than the time from the kernel's kill to our reading, and
# short, so that it covers few other kills. It is counted in readings and not in seconds: the loop takes them, so a
# blocked loop, which sees a death late, has not moved the window either.
WINDOW_READINGS = 3


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
