"""The life of one attempt's child, seen from the supervisor: birth, gate, end, and what is cleaned up after it.

    birth:  template forks -> pidfd -> scratch folder, cgroup leaf, baseline -> setup and job through the gate
    death:  pidfd readable -> drain socket and pipe -> kill what is left of the tree -> read the OOM counters -> wait4
            -> classify -> remove leaf and scratch folder

What cannot be ended (a process in uninterruptible sleep, a folder that takes minutes to remove) lingers: the report is
given, while slot, memory and mark stay taken until it is gone.
"""

import asyncio
import logging
import os
import signal
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from jobs.failpoints import Failpoint, failpoint
from jobs.outcome import AttemptReport
from jobs.store import ClaimedJob
from pools.cgroups import Leaves
from pools.execution import Execution, Intent
from pools.frames import JobFrame, Setup, UserFrame, pack
from pools.leftovers import KILL_SECONDS, Remains, Tree, stats
from pools.memory import ERROR_PATH_MB, Baseline, Gauge
from pools.oom import OomWatch
from pools.options import IngestOptions, StartMethod
from pools.ownership import OwnedChild, Watched
from pools.roster import Roster
from pools.scratch import ScratchFolders
from pools.spawner import Spawner
from pools.template_hold import SpawnFailed
from pools.threads import Threads
from pools.verdict import classify

STUCK_SECONDS = 10.0  # after SIGKILL: only a process in uninterruptible sleep lives so long, and only a person can help
REMOVE_AT_ONCE_SECONDS = 0.5  # what takes longer to remove is not waited for: the verdict comes first
REMOVE_SECONDS = 60.0
HUNT_SECONDS = 0.5  # at a time, for a tree that went on after its burial
CPU_MARGIN_SECONDS = 60  # of the backstop beyond what all processors could do until the deadline

log = logging.getLogger("oomph.ingest")


@dataclass(eq=False)
class Household:
    """What the attempts of one pool share."""

    spawner: Spawner
    roster: Roster
    oom: OomWatch
    options: IngestOptions
    slots: int
    scratches: ScratchFolders
    user: UserFrame | None = None
    readable: list[str] | None = None
    writable: list[str] = field(default_factory=list)
    leaves: Leaves | None = None
    has_own_shm: bool = False

    def __post_init__(self) -> None:
        self.threads = Threads("ingest", 2)
        self.disk = Threads("disk", 1)  # by itself: a folder of a million files must hold up no verdict
        self.processors = os.cpu_count() or 1


class Life:
    """One child from its birth to its report."""

    def __init__(self, house: Household, child: OwnedChild) -> None:
        self.house = house
        self.child = child
        self.execution = child.execution

    @classmethod
    async def begin(cls, house: Household, execution: Execution, mark: int, limit_mb: int) -> "Life":
        """Have a child made and take hold of it. Raises `SpawnFailed`."""
        house.roster.births.add(mark)
        try:
            child = await OwnedChild.born(execution, house.spawner, mark, limit_mb)
            house.roster.children[child.pid] = child
        finally:
            house.roster.births.discard(mark)
        return cls(house, child)

    async def run(self) -> AttemptReport:
        """From the gate to the report; afterwards child and tree are dead and reaped, or linger."""
        child = self.child
        unopened: str | None = "it was stopped at its gate"
        try:
            unopened = await self._open_gate() or unopened
            if child.gate_opened:
                failpoint(Failpoint.GATE_OPENED)
                await self._until_end()
                if self.execution.intent is not None:
                    failpoint(Failpoint.INTENDED)
        finally:
            child.kill()
            report = await self._bury()
        ours = child.intent_at_exit if child.exited.is_set() else self.execution.intent
        if child.gate_opened or ours is not None or child.frames.last is not None:
            return report
        raise SpawnFailed(unopened)

    async def _open_gate(self) -> str | None:
        """Enclose the child and give it its job. Returns why that was not possible, if anybody should know."""
        child, house = self.child, self.house
        fresh = house.options.start_method is StartMethod.EXEC
        try:
            setup = await house.threads.run(self._prepare, at_gate=not fresh)
            failpoint(Failpoint.BORN)
            if self.execution.intent is not None:
                return None
            if fresh:
                why = await child.send(setup) or await child.wait_at_gate()
                if why is not None:
                    return why
                await house.threads.run(self._measure)
                setup = b""
        except OSError as error:
            return f"{error.strerror} ({error.filename}), preparing a child"
        if not self._may_start():
            return None
        why = await child.send(setup + pack(job_frame(self.execution.job, child.limit_mb)))
        child.gate_opened = why is None
        return why

    def _may_start(self) -> bool:
        """Unless somebody has asked for the end. From now on the job runs, and a pause does not end it any more."""
        self.execution.waits = False
        return self.execution.intent is None

    def _prepare(self, *, at_gate: bool) -> bytes:
        """In a thread. The child keeps what was made, also where a later step fails."""
        child, house = self.child, self.house
        owner = None if house.user is None else (house.user.uid, house.user.gid)
        child.scratch = house.scratches.make(f"{child.tree.mark:x}", owner)
        child.scratch_mb = house.options.scratch_mb
        if house.leaves is not None:
            child.leaf = house.leaves.make(child.scratch.path.name, house.options.threads)
            child.leaf.add(child.pid)
        if at_gate:
            self._measure()
        return pack(self._setup(str(child.scratch.path)))

    def _measure(self) -> None:
        """In a thread, once the child is at its gate: what it has now is not the job's."""
        child = self.child
        assert child.scratch is not None
        child.baseline = Baseline.of(child.pid)
        if child.leaf is not None:
            # Above the limit of each process, so that one which meets its own gets a MemoryError with a stack.
            child.leaf.limit_memory(child.limit_mb + child.baseline.exact // 1024 + ERROR_PATH_MB)
        device = os.lstat(child.scratch.path).st_dev
        gauge, options = Gauge(child.baseline, child.limit_mb), self.house.options
        child.watched = Watched(child.tree, gauge, options.processes, options.threads, device)

    def _setup(self, scratch: str) -> Setup:
        house, options = self.house, self.house.options
        seconds = self.execution.job.timeout.total_seconds() * house.processors
        return Setup(
            supervisor=os.getpid(),
            scratch=scratch,
            user=house.user,
            readable=house.readable,
            writable=house.writable,
            open_files=options.open_files,
            file_mb=options.scratch_mb,
            # The kernel counts for the user, not for the job. Where that is the supervisor's own user, it would count
            # the supervisor as well.
            processes=0 if house.user is None else options.processes * house.slots,
            cpu_seconds=int(seconds) + CPU_MARGIN_SECONDS,
            shm_mb=self.child.limit_mb if house.has_own_shm else 0,
        )

    async def _until_end(self) -> None:
        child, execution = self.child, self.execution
        loop = asyncio.get_running_loop()
        deadline = loop.call_later(execution.job.timeout.total_seconds(), execution.stop, Intent.DEADLINE)
        events = [asyncio.ensure_future(child.exited.wait()), asyncio.ensure_future(execution.stopping())]
        try:
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        finally:
            deadline.cancel()
            for event in events:
                event.cancel()
        if not child.exited.is_set() and execution.intent is Intent.DEADLINE:
            await child.dump_stacks()

    async def _bury(self) -> AttemptReport:
        child, oom = self.child, self.house.oom
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                await child.exited.wait()
        except TimeoutError:
            return await self._give_up()
        remains = Remains([], is_restless=False)
        try:
            failpoint(Failpoint.EXITED)
            child.stop_hearing()
            before, after = oom.before(), oom.read()
            if child.leaf is not None:
                before, after = replace(before, job=0), replace(after, job=child.leaf.oom_kills())
            remains = await self._kill_tree()
            failpoint(Failpoint.TREE_KILLED)
        finally:
            ending = child.reap()
            del self.house.roster.children[child.pid]
            await self._clean_up(remains)
        failpoint(Failpoint.REAPED)
        evidence = child.evidence(ending, before, after)
        if evidence.signal == signal.SIGKILL and evidence.intent is None:
            evidence = replace(evidence, unexplained_kills=oom.count_unexplained_kill())
        return classify(evidence)

    async def _kill_tree(self) -> Remains:
        """End what is left of the tree, and reap it. Returns what goes on all the same."""
        remains = await self._hunt(self.child.tree, KILL_SECONDS)
        if remains.survivors:
            pids = [stat.pid for stat in remains.survivors]
            self.child.leftovers = f"it left processes that survive SIGKILL: {pids}"
        elif remains.is_restless:
            self.child.leftovers = "it left processes that fork faster than they can be killed"
        if self.child.leftovers:
            log.error("job %d: %s", self.execution.job.id, self.child.leftovers)
        return remains

    async def _hunt(self, tree: Tree, seconds: float) -> Remains:
        try:
            return await self.house.threads.run(tree.kill, self.house.roster.owned(), seconds)
        except OSError as error:
            # No descriptor is free to look with. There will be one.
            log.error("job %d: its tree could not be looked at: %s", self.execution.job.id, error.strerror)
            return Remains([], is_restless=True)

    async def _give_up(self) -> AttemptReport:
        """Report an attempt whose child cannot be killed. Its slot stays closed until the child is gone."""
        child, oom = self.child, self.house.oom
        log.error("child %d survives SIGKILL (uninterruptible sleep?); its slot stays closed", child.pid)
        child.is_given_up = True
        await self._kill_tree()
        report = classify(child.evidence(None, oom.before(), oom.read()))

        async def until_gone() -> None:
            await child.exited.wait()
            child.stop_hearing()
            remains = await self._kill_tree()
            child.reap()
            del self.house.roster.children[child.pid]
            log.warning("child %d is gone at last", child.pid)
            await self._linger(remains)

        self.execution.lingering = asyncio.ensure_future(until_gone())
        return report

    async def _clean_up(self, remains: Remains) -> None:
        """Remove what the child was given; what takes long goes on by itself, with the slot closed."""
        child, house = self.child, self.house
        if remains.is_nothing and await house.threads.run(self._remove, REMOVE_AT_ONCE_SECONDS):
            return
        log.info("child %d: its slot stays closed until it is cleaned up", child.pid)
        self.execution.lingering = asyncio.ensure_future(self._linger(remains))

    async def _linger(self, remains: Remains) -> None:
        starts = {stat.pid: stat.start for stat in remains.survivors}
        # Nobody announces that the kernel has let go of one.
        while remains.is_restless or any(starts[s.pid] == s.start and not s.is_dead for s in stats(starts)):
            await asyncio.sleep(0.25 if remains.is_restless and not remains.survivors else 1)
            remains = await self._hunt(self.child.tree.leaderless, HUNT_SECONDS)
        started = time.monotonic()
        while not await self.house.disk.run(self._remove, REMOVE_SECONDS):
            if time.monotonic() - started < REMOVE_SECONDS:
                # A mount point, an immutable file: it will not go, however long we try.
                log.error("job %d: not all of its scratch folder or cgroup can be removed", self.execution.job.id)
                return
            started = time.monotonic()

    def _remove(self, seconds: float) -> bool:
        """In a thread."""
        child = self.child
        leaf_gone = child.leaf is None or child.leaf.remove()
        return (child.scratch is None or child.scratch.remove(seconds)) and leaf_gone


def job_frame(job: ClaimedJob, limit_mb: int) -> JobFrame:
    """What opens a gate. The deadline counts from now."""
    return JobFrame(
        id=job.id,
        claim=job.claim,
        kind=job.kind,
        payload=job.payload,
        attempt=job.attempt,
        organization_id=job.organization_id,
        deadline=datetime.now(UTC) + job.timeout,
        memory_mb=limit_mb,
    )
