"""What is looked at once a second: the memory of every job's whole tree, and orphans that nobody owns."""

import time
from collections.abc import Collection
from dataclasses import dataclass

from pools import leftovers
from pools.leftovers import Tree, kill_processes, snapshot
from pools.memory import Baseline, tree_mb
from pools.procfs import ProcessStat

WATCH_SECONDS = 1.0  # a job that fills memory faster than this meets its own RLIMIT_DATA or the kernel first


@dataclass(frozen=True, slots=True)
class Watched:
    """What the watch must know of one child."""

    tree: Tree
    baseline: Baseline
    limit_mb: int


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look found: MiB in use by the pid of each child, and dead orphans to reap."""

    used_mb: dict[int, float]
    dead_strays: list[ProcessStat]


def look(children: list[Watched], owned: Collection[int], spared_marks: Collection[int]) -> Sight:
    """Measure all trees, and kill orphans whose job has ended. Blocks on /proc: for a worker thread.

    `spared_marks` are those of running jobs, of children being born, and of the template.
    """
    processes = snapshot()
    used = {
        child.tree.leader: tree_mb(
            [child.tree.leader, *(stat.pid for stat in child.tree.members(processes, owned))],
            child.baseline,
            child.limit_mb,
        )
        for child in children
    }
    strays = leftovers.strays(processes, owned)
    kill_processes(
        [stat for stat, mark in strays if not stat.is_dead and mark not in spared_marks], time.monotonic() + 1
    )
    return Sight(used, [stat for stat, _ in strays if stat.is_dead])
