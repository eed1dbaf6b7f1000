"""Finds every process of a job's tree, also those that tried to leave it, and ends them.

A process belongs to a job if it descends from the job's child, or if it was given to us as an orphan and is in the
child's session or carries the job's mark (see `process.carry_mark`). As a subreaper we are given every orphan of every
job, so all of its tree hangs below a direct child of ours. From there the kernel's own lists of children lead on: they
cost by the size of the job, not of the host.

Everything here blocks on /proc: for a worker thread, or for a moment when the loop itself is stuck.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pools import process
from pools.identity import mark_of, owner_is_gone, owner_pid, pid_namespace
from pools.procfs import ProcessStat, parse_stat, slurp

KILL_SECONDS = 4.0  # within the five in which no process of a finished job may be left
# Two looks in a row must find nothing: a list of children that is read while some of them end may lack one.
QUIET_LOOKS = 2

Children = Callable[[int], list[int]]


def children_reader() -> Children:
    """What tells the children of a pid: the kernel's lists, or where it keeps none, one look at all processes."""
    if Path("/proc/thread-self/children").exists():
        return _listed_children
    by_parent: dict[int, list[int]] = defaultdict(list)
    for stat in snapshot():
        by_parent[stat.parent].append(stat.pid)
    return lambda pid: by_parent.get(pid, [])


def _listed_children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, slurp(f"/proc/{pid}/task/{thread}/children").split())
    return found


def snapshot() -> list[ProcessStat]:
    """Every process of this host (or of this pid namespace) that can be seen now."""
    return stats(int(name) for name in os.listdir("/proc") if name.isdigit())


def stats(pids: Iterable[int]) -> list[ProcessStat]:
    """What the kernel says of these, without those that have gone."""
    found = []
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            found.append(parse_stat(slurp(f"/proc/{pid}/stat")))
    return found


@dataclass(frozen=True, slots=True)
class Orphan:
    """A child of ours that leads no tree of a running job: somebody else's, or what a job left to us."""

    stat: ProcessStat
    mark: int | None


def orphans(children: Children, owned: Collection[int]) -> list[Orphan]:
    """All of them, dead or alive. `owned` are children of ours that lead trees."""
    return [Orphan(stat, mark_of(stat.pid)) for stat in stats(set(children(os.getpid())) - set(owned))]


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

    def pids(self, children: Children, found: Collection[Orphan], enough: int | None = None) -> list[int]:
        """The pids of this tree without its leader, dead ones too. Stops looking once there are `enough`."""
        waiting = [self.leader, *(orphan.stat.pid for orphan in found if self._owns(orphan))]
        seen = set(waiting)
        while waiting and (enough is None or len(seen) <= enough):
            new = set(children(waiting.pop())) - seen
            seen |= new
            waiting += new
        return list(seen - {self.leader})

    def kill(self, owned: Collection[int]) -> "Cull":
        """SIGKILL all members, again and again until nothing is found: a member may fork while we look."""
        deadline = time.monotonic() + KILL_SECONDS
        quiet = 0
        while True:
            children = children_reader()
            found = orphans(children, owned)
            alive = [stat for stat in stats(self.pids(children, found)) if not stat.is_dead]
            quiet = 0 if alive else quiet + 1
            if quiet >= QUIET_LOOKS or time.monotonic() > deadline:
                dead = [orphan.stat.pid for orphan in found if orphan.stat.is_dead and self._owns(orphan)]
                return Cull(dead, [stat.pid for stat in alive])
            kill_processes(alive, deadline)

    def _owns(self, orphan: Orphan) -> bool:
        return orphan.mark == self.mark or orphan.stat.session == self.leader


def kill_processes(processes: Collection[ProcessStat], deadline: float) -> None:
    """SIGKILL exactly these and wait for their ends. A pid that has passed to another process is left alone."""
    pidfds: list[int] = []
    try:
        for stat in processes:
            with suppress(OSError, ValueError):
                pidfds.append(os.pidfd_open(stat.pid))
                # The pidfd pins whoever has the pid now; the start time tells whether that is still the one we saw.
                if parse_stat(slurp(f"/proc/{stat.pid}/stat")).start != stat.start:
                    os.close(pidfds.pop())
        process.kill_and_wait(pidfds, deadline)
    finally:
        for pidfd in pidfds:
            os.close(pidfd)


def sweep_processes(owner: int | None = None) -> Cull:
    """End what supervisors that live no more have left running on this host; `dead` are those that were killed.

    With the pid of an `owner`, only what that one has left. Never a process of one that lives, nor one of another pid
    namespace, where that cannot be told.
    """
    deadline = time.monotonic() + KILL_SECONDS
    killed: set[int] = set()
    while True:
        left = [stat for stat in snapshot() if not stat.is_dead and _is_ownerless(stat.pid, owner)]
        if not left or time.monotonic() > deadline:
            return Cull(sorted(killed), [stat.pid for stat in left])
        killed |= {stat.pid for stat in left}
        kill_processes(left, deadline)


def _is_ownerless(pid: int, owner: int | None) -> bool:
    mark = mark_of(pid)
    if mark is None or owner not in (None, owner_pid(mark)):
        return False
    return owner_is_gone(mark) and pid_namespace(pid) == pid_namespace(os.getpid())
