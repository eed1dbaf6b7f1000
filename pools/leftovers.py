"""Finds every process of a job's tree, also those that tried to leave it, and ends them.

A process belongs to a job if it is in the session of the job's child, if it descends from one that belongs, or if it
was given to us as an orphan and carries the job's mark (see `process.carry_mark`). As a subreaper we are given every
orphan of every job, so once the child is dead all that is left of its tree hangs below a direct child of ours.

Everything here blocks on /proc: for a worker thread, or for a moment when the loop itself is stuck.
"""

import os
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pools import process
from pools.procfs import ProcessStat, parse_hard_limit, parse_stat

KILL_SECONDS = 4.0  # within the five in which no process of a finished job may be left

Snapshot = Mapping[int, ProcessStat]


def snapshot() -> Snapshot:
    """Every process of this host (or of this pid namespace) that can be seen now."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                stat = parse_stat(Path(f"/proc/{name}/stat").read_text(errors="replace"))
                found[stat.pid] = stat
    return found


@dataclass(frozen=True, slots=True)
class Cull:
    """What is left of a tree, by pid: the dead that are ours to reap, and those that survived even SIGKILL."""

    dead: list[int]
    survivors: list[int]


@dataclass(frozen=True, slots=True)
class Tree:
    """A job's processes by what identifies them: the child that leads its session, and the mark that all inherit."""

    leader: int
    mark: int

    def members(self, processes: Snapshot, owned: Collection[int]) -> list[ProcessStat]:
        """The living processes of this tree, without its leader. `owned` are children of ours that lead trees."""
        found = {stat.pid for stat in processes.values() if self._is_root(stat, owned)}
        grown = True
        while grown:
            new = {s.pid for s in processes.values() if s.parent in found and s.pid not in found}
            grown = bool(new)
            found |= new
        return [processes[pid] for pid in found if pid != self.leader and not processes[pid].is_dead]

    def kill(self, owned: Collection[int]) -> "Cull":
        """SIGKILL all members, again and again until a look finds none: a member may fork while we look."""
        deadline = time.monotonic() + KILL_SECONDS
        while (found := self.members(processes := snapshot(), owned)) and time.monotonic() < deadline:
            kill_processes(found, deadline)
        dead = [s for s in processes.values() if s.is_dead and s.pid != self.leader and self._is_root(s, owned)]
        return Cull([s.pid for s in dead if s.parent == os.getpid()], [s.pid for s in found])

    def _is_root(self, stat: ProcessStat, owned: Collection[int]) -> bool:
        if stat.session == self.leader or stat.parent == self.leader:
            return True
        return stat.parent == os.getpid() and stat.pid not in owned and mark_of(stat.pid) == self.mark


def mark_of(pid: int) -> int | None:
    """The mark that a process carries, dead or alive; None where it has none or is gone."""
    try:
        return parse_hard_limit(Path(f"/proc/{pid}/limits").read_text(), process.MARK_NAME)
    except OSError:
        return None


def kill_processes(processes: Collection[ProcessStat], deadline: float) -> None:
    """SIGKILL exactly these and wait for their ends. A pid that has passed to another process is left alone."""
    pidfds: list[int] = []
    try:
        for stat in processes:
            with suppress(OSError, ValueError):
                pidfds.append(os.pidfd_open(stat.pid))
                # The pidfd pins whoever has the pid now; the start time tells whether that is still the one we saw.
                if parse_stat(Path(f"/proc/{stat.pid}/stat").read_text(errors="replace")).start != stat.start:
                    os.close(pidfds.pop())
        process.kill_and_wait(pidfds, deadline)
    finally:
        for pidfd in pidfds:
            os.close(pidfd)


def strays(processes: Snapshot, owned: Collection[int]) -> list[tuple[ProcessStat, int]]:
    """Orphans that some job or template left to us, dead or alive, each with its mark.

    A child that another part of this process started carries our own mark, and is none of our business.
    """
    own_mark = mark_of(os.getpid())
    return [
        (stat, mark)
        for stat in processes.values()
        if stat.parent == os.getpid()
        and stat.pid not in owned
        and (mark := mark_of(stat.pid)) is not None
        and mark != own_mark
    ]
