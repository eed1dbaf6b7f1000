"""The watch: the memory, processes and scratch folder of every tree, and orphans that nobody owns.

All of them once a second; a tree that comes near its limit more often, as often as it could get there.
"""

import asyncio
import logging
import os
import time
from dataclasses import dataclass

from pools import process
from pools.execution import Intent
from pools.leftovers import Children, Orphan, children_reader, kill_processes, orphans, stats
from pools.oom import OomWatch
from pools.open_files import OpenFileReader
from pools.ownership import OwnedChild, Watched
from pools.procfs import count_threads
from pools.roster import Roster
from pools.threads import Threads

WATCH_SECONDS = 1.0  # between two looks at everything
FASTEST_SECONDS = 0.1  # between two looks at a tree near its limit: what fills memory faster meets the kernel first
# A tree is looked at four times before it could reach its limit at its present rate, or in ten seconds from nothing.
LOOKS_TO_LIMIT = 4
SUSPECTED_SECONDS = 10
# Dead orphans of one tree at one look. With more to come, it is reaped at the fastest pace: the dead hold pids, and
# count for the kernel's limits.
MANY_DEAD = 32
SCRATCH_SECONDS = 2.0  # between two looks at a scratch folder, at least; and ten times what the last one took
FOREIGN_ZOMBIE_SECONDS = 30.0  # as PID 1 we are given zombies that no job left; one so old has no other waiter

log = logging.getLogger("oomph.ingest")


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look found of one tree."""

    used_mb: float
    processes: int
    threads: int
    unlinked_mb: float


def pace(used_mb: float, grown_mb_per_second: float, limit_mb: int) -> float:
    """Seconds until a tree should be looked at again."""
    rate = max(grown_mb_per_second, limit_mb / SUSPECTED_SECONDS)
    return min(WATCH_SECONDS, max(FASTEST_SECONDS, (limit_mb - used_mb) / rate / LOOKS_TO_LIMIT))


class Watch:
    """Looks, in a thread, and acts on what it sees, on the loop."""

    def __init__(self, roster: Roster, oom: OomWatch) -> None:
        self._roster = roster
        self._oom = oom
        self._threads = Threads("watch", 1)
        self._disk = Threads("scratch-watch", 1)
        self._files = OpenFileReader()
        self._foreign: dict[int, float] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._oom.tick()
        self._tasks = [
            asyncio.create_task(self._look_for_ever(), name="oomph ingest watch"),
            asyncio.create_task(self._measure_scratch(), name="oomph scratch watch"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.stop()
        self._disk.stop()

    async def look_around(self) -> None:
        """Look at everything: all trees, and all orphans."""
        self._act(*await self._threads.run(self._look, list(self._roster.children.values()), everything=True))

    async def _look_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        next_round = loop.time()
        while True:
            children = [child for child in self._roster.children.values() if child.watched is not None]
            first_due = min([next_round, *(child.watched.due for child in children if child.watched is not None)])
            await asyncio.sleep(max(FASTEST_SECONDS / 2, first_due - loop.time()))
            try:
                if (now := loop.time()) >= next_round:
                    next_round = now + WATCH_SECONDS
                    self._oom.tick()
                    await self.look_around()
                else:
                    near = [c for c in self._roster.children.values() if c.watched is not None and c.watched.due <= now]
                    self._act(*await self._threads.run(self._look, near, everything=False))
            except Exception:  # the next look may succeed, and without a watch nothing caps a whole tree
                log.exception("the memory watch could not look")

    def _look(self, watched: list[OwnedChild], *, everything: bool) -> tuple[dict[OwnedChild, Sight], list[Orphan]]:
        """In the thread. Kills what no running job explains."""
        roster = self._roster
        children = children_reader()
        found = orphans(children, roster.owned())
        seen = {child: self._measure(child.watched, children, found) for child in watched if child.watched is not None}
        if everything:
            spared, own = roster.spared(), roster.marks.own
            strays = [o.stat for o in found if o.mark not in (None, own, *spared) and not o.stat.is_dead]
            kill_processes(strays, time.monotonic() + 1)
        return seen, found

    def _measure(self, watched: Watched, children: Children, found: list[Orphan]) -> Sight:
        ours = [orphan.stat for orphan in found if watched.tree.owns(orphan)]
        alive = [stat.pid for stat in ours if not stat.is_dead]
        helpers = watched.tree.pids(children, alive, watched.processes)
        pids = [watched.tree.leader, *helpers]
        files = self._files.read(pids, watched.scratch_device, watched.born_at)
        used_mb = watched.gauge.measure(pids, files.shm)
        now = time.monotonic()
        rate = (used_mb - watched.used_mb) / max(now - watched.looked_at, 0.01) if watched.looked_at else 0.0
        watched.used_mb, watched.looked_at = used_mb, now
        is_busy_dying = len(ours) - len(alive) > MANY_DEAD
        watched.due = now + (FASTEST_SECONDS if is_busy_dying else pace(used_mb, rate, watched.gauge.limit_mb))
        return Sight(used_mb, len(pids), count_threads(pids), files.unlinked / 1024)

    def _act(self, seen: dict[OwnedChild, Sight], found: list[Orphan]) -> None:
        for child, sight in seen.items():
            # What is being ended shrinks: the figure that led to it must stay.
            if child.exited.is_set() or child.watched is None or child.execution.intent is not None:
                continue
            child.note_memory(sight.used_mb)
            child.unlinked_mb = sight.unlinked_mb
            if sight.processes > child.watched.processes:
                child.over = f"it had more than {child.watched.processes} processes at once"
                child.execution.stop(Intent.PROCESSES)
            elif sight.threads > child.watched.threads:
                child.over = f"it had more than {child.watched.threads} threads at once"
                child.execution.stop(Intent.PROCESSES)
            elif sight.used_mb > child.limit_mb:
                child.execution.stop(Intent.MEMORY)
        self._reap(found)

    def _reap(self, found: list[Orphan]) -> None:
        """Collect the dead that jobs left to us, and as PID 1 also those that come from nowhere."""
        now = time.monotonic()
        foreign: dict[int, float] = {}
        running = {child.tree.mark for child in self._roster.children.values() if not child.exited.is_set()}
        # `Tree.kill` reaps these, and must miss none: what it finds dead tells it that others live.
        dying = self._roster.marks.in_use - running
        for orphan in found:
            pid, mark = orphan.stat.pid, orphan.mark
            if not orphan.stat.is_dead or pid in self._roster.owned():
                continue
            if mark is None or mark == self._roster.marks.own:
                # What another part of this process started carries our own mark, and is its to wait for.
                foreign[pid] = self._foreign.get(pid, now)
                if os.getpid() == 1 and now - foreign[pid] > FOREIGN_ZOMBIE_SECONDS:
                    process.reap(pid)
            elif mark in dying or self._roster.may_be_unborn(mark):
                continue
            elif mark in running or stats([pid]) == [orphan.stat]:  # else it may have been reaped since
                process.reap(pid)
        self._foreign = foreign

    async def _measure_scratch(self) -> None:
        while True:
            pause = SCRATCH_SECONDS
            for child in list(self._roster.children.values()):
                if child.scratch is None or child.exited.is_set():
                    continue
                started = time.monotonic()
                over = await self._disk.run(child.scratch.excess, child.scratch_mb, child.unlinked_mb)
                pause += 10 * (time.monotonic() - started)
                if over and not child.exited.is_set():
                    child.over = over
                    child.execution.stop(Intent.SCRATCH)
            await asyncio.sleep(pause)
