"""What is known of a child that has ended, and what the OOM counters among it say."""

import os
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from pools.execution import Intent
from pools.frames import LastFrame
from pools.memory import NEAR_LIMIT
from pools.oom import OomCounters


class Certainty(StrEnum):
    CERTAIN = "certain"
    LIKELY = "likely"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEvidence:
    """All that is known of a child that has ended. Memory in MiB, beyond what it had at its gate.

    `status` is the raw wait status, or None where another waiter took it. `before` and `after` enclose the death;
    `unexplained_kills` counts our children that died in between by a SIGKILL that we did not send, this one included.
    `stacks` is what the child's threads did at its deadline. `over` says which limit other than memory was passed.
    `has_started` is false where the child never told that the handler begins, which no handler can prevent.
    `survives` is a child that even SIGKILL has not ended, `leftovers` says so of the rest of its tree.
    `cgroup_peak_mb` includes the page cache.
    """

    intent: Intent | None = None
    has_started: bool = True
    frame: LastFrame | None = None
    broken_frame: str | None = None
    status: int | None = None
    before: OomCounters = field(default_factory=OomCounters)
    after: OomCounters = field(default_factory=OomCounters)
    unexplained_kills: int = 1
    limit_mb: int = 0
    last_mb: float | None = None
    peak_mb: float | None = None
    cgroup_peak_mb: float | None = None
    over: str = ""
    survives: bool = False
    leftovers: str = ""
    cpu_seconds: float | None = None
    pid: int | None = None
    output_tail: str = ""
    stacks: str = ""
    timeout: timedelta = timedelta(0)

    @property
    def signal(self) -> int | None:
        return os.WTERMSIG(self.status) if self.status is not None and os.WIFSIGNALED(self.status) else None

    @property
    def exit_code(self) -> int | None:
        return os.WEXITSTATUS(self.status) if self.status is not None and os.WIFEXITED(self.status) else None

    @property
    def is_at_limit(self) -> bool:
        return max(self.last_mb or 0, self.peak_mb or 0) > NEAR_LIMIT * self.limit_mb

    @property
    def memory(self) -> str:
        """`peak 212 MB of 512 MB`"""
        if self.peak_mb is None:
            return f"peak not known, limit {self.limit_mb} MB"
        return f"peak {self.peak_mb:.0f} MB of {self.limit_mb} MB"


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the OOM counters say. `moved` is about those that cover the child; None where none can be read."""

    moved: bool | None
    certainty: Certainty
    text: str
    is_ours_alone: bool = False


def kernel_killed(evidence: ChildEvidence, *, helper: bool) -> Kernel:
    """Whether the kernel's OOM killer took the child, or a `helper` of it."""
    moves = {name: now - was for name, was, now in counters(evidence)}
    numbers = ", ".join(f"{name} {was} -> {now}" for name, was, now in counters(evidence))
    if moves.get("job", 0) > 0:
        return Kernel(True, Certainty.CERTAIN, f"the job's own OOM counter moved ({numbers})", is_ours_alone=True)
    if "job" in moves:
        return Kernel(False, Certainty.CERTAIN, f"the job's own OOM counter did not move ({numbers}), {_NOT_OOM}")
    if (moved := moves.get("own", 0)) > 0:
        # A helper's death is not among the counted ones, so its kill may belong to somebody else in the cgroup.
        sure = not helper and moved >= evidence.unexplained_kills
        shared = "" if sure else "; other processes share it"
        return Kernel(
            True,
            Certainty.CERTAIN if sure else Certainty.LIKELY,
            f"the OOM counter of this worker's cgroup moved ({numbers}){shared}",
        )
    if moves.get("host") == 0:
        return Kernel(False, Certainty.CERTAIN, f"the kernel's OOM counter did not move ({numbers}), {_NOT_OOM}")
    if "own" in moves:
        return Kernel(
            False,
            Certainty.LIKELY,
            f"the OOM counter of this worker's cgroup did not move ({numbers}), so probably not the OOM killer",
        )
    if "host" in moves:
        return Kernel(True, Certainty.LIKELY, f"the host's OOM counter moved ({numbers}); all of the host shares it")
    return Kernel(None, Certainty.UNKNOWN, "no OOM counter can be read here, so who sent it is not known")


_NOT_OOM = "so not the OOM killer"


def counters(evidence: ChildEvidence) -> list[tuple[str, int, int]]:
    """The counters that could be read both times, the one that covers least first.

    One that went down is not the counter it was (its cgroup was made anew), so it says nothing.
    """
    pairs = [(name, getattr(evidence.before, name), getattr(evidence.after, name)) for name in ("job", "own", "host")]
    return [(name, was, now) for name, was, now in pairs if was is not None and now is not None and now >= was]
