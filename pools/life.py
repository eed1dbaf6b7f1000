"""The life of one attempt's child, seen from the supervisor: gate, end, and what is cleaned up after it.

    gate:   limit of the cgroup leaf -> the job through the gate (how the child came there: `pools.nursery`)
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
from dataclasses import replace
from datetime import UTC, datetime

from jobs.claim import ClaimedJob
from jobs.failpoints import Failpoint, failpoint
from jobs.outcome import AttemptReport
from pools.execution import Execution, Intent
from pools.frames import JobFrame, pack
from pools.household import Household
from pools.leftovers import KILL_SECONDS, Remains, Tree, stats
from pools.memory import ERROR_PATH_MB, Baseline, Gauge
from pools.newborn import Newborn
from pools.oom import OomCounters
from pools.options import StartMethod
from pools.ownership import GATE_SECONDS, OwnedChild, Watched
from pools.template_hold import SpawnFailed
from pools.verdict import classify

STUCK_SECONDS = 10.0  # after SIGKILL: only a process in uninterruptible sleep lives so long, and only a person can help
REMOVE_AT_ONCE_SECONDS = 0.5  # what takes longer to remove is not waited for: the verdict comes first
REMOVE_SECONDS = 60.0
HUNT_SECONDS = 0.5  # at a time, for a tree that went on after its burial
CPU_MARGIN_SECONDS = 60  # of the backstop beyond what all processors could do until the deadline

log = logging.getLogger("oomph.ingest")


class Life:
    """One child from its gate to its report."""

    def __init__(self, house: Household, newborn: Newborn, execution: Execution, limit_mb: int) -> None:
        self.house = house
        self.execution = execution
        self.child = OwnedChild.of(newborn, execution, limit_mb)
        self.child.scratch_mb = house.options.scratch_mb
        self._device = newborn.scratch_device
        self._is_cleared = False
        house.roster.children[newborn.pid] = self.child
        del house.roster.newborns[newborn.pid]

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
        """Give the child its job. Returns why that was not possible, if anybody should know."""
        child, house = self.child, self.house
        failpoint(Failpoint.BORN)
        if self.execution.intent is not None:
            return None
        try:
            if house.options.start_method is StartMethod.EXEC:
                why = await child.wait_at_gate()
                if why is not None:
                    return why
                child.baseline = await house.threads.run(Baseline.of, child.pid)
            if child.leaf is not None:
                # Above the limit of each process, so that one which meets its own gets a MemoryError with a stack; and
                # above what it copies of the template's pages.
                beyond_mb = child.baseline.held // 1024 + ERROR_PATH_MB
                await house.threads.run(child.leaf.limit_memory, child.limit_mb + beyond_mb)
        except OSError as error:
            return f"{error.strerror} ({error.filename}), preparing a child"
        gauge, options = Gauge(child.baseline, child.limit_mb), house.options
        child.watched = Watched(child.tree, gauge, options.processes, options.threads, self._device)
        if not self._may_start():
            return None
        why = await child.send(pack(job_frame(self.execution.job, child.limit_mb)))
        child.gate_opened = why is None
        return why

    def _may_start(self) -> bool:
        """Unless somebody has asked for the end. From now on the job runs, and a pause does not end it any more."""
        self.execution.waits = False
        return self.execution.intent is None

    async def _until_end(self) -> None:
        child, execution = self.child, self.execution
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not over.done():
                over.set_result(None)

        def expect_start() -> None:
            if not child.frames.has_started:
                execution.stop(Intent.UNSTARTED)

        deadline = loop.call_later(execution.job.timeout.total_seconds(), execution.stop, Intent.DEADLINE)
        start = loop.call_later(GATE_SECONDS, expect_start)
        child.on_exit = end
        execution.on_stop(end)
        if child.exited.is_set():
            end()
        try:
            await over
        finally:
            deadline.cancel()
            start.cancel()
        if not child.exited.is_set() and execution.intent is Intent.DEADLINE:
            await child.dump_stacks()

    async def _bury(self) -> AttemptReport:
        child, oom = self.child, self.house.oom
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                await child.exited.wait()
        except TimeoutError:
            return await self._give_up()
        remains, cgroup_peak_mb = Remains([], is_restless=False), None
        before = after = OomCounters()
        try:
            failpoint(Failpoint.EXITED)
            child.stop_hearing()
            if not child.has_succeeded:  # which is judged by no counter
                before, after = oom.before(), oom.read()
            if child.leaf is not None:
                before, after = replace(before, job=0), replace(after, job=child.leaf.oom_kills())
                cgroup_peak_mb = child.leaf.peak_mb()  # while there is a leaf
            remains = await self._kill_tree()
            failpoint(Failpoint.TREE_KILLED)
        finally:
            ending = child.reap()
            del self.house.roster.children[child.pid]
            if not self._is_cleared:
                log.info("child %d: its slot stays closed until it is cleaned up", child.pid)
                self.execution.lingering = asyncio.ensure_future(self._linger(remains))
        failpoint(Failpoint.REAPED)
        evidence = child.evidence(ending, before, after, cgroup_peak_mb)
        if evidence.signal == signal.SIGKILL and evidence.intent is None:
            evidence = replace(evidence, unexplained_kills=oom.count_unexplained_kill())
        return classify(evidence)

    async def _kill_tree(self) -> Remains:
        """End what is left of the tree, and reap it; clear up where nothing is. Returns what goes on all the same."""
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
        def hunt() -> Remains:
            remains = tree.kill(self.house.roster.owned(), seconds)
            # In the same thread at once: each change of threads costs as much as this.
            self._is_cleared = (
                remains.is_nothing and self.child.exited.is_set() and self._remove(REMOVE_AT_ONCE_SECONDS)
            )
            return remains

        try:
            return await self.house.threads.run(hunt)
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

    async def _linger(self, remains: Remains) -> None:
        """Go on by itself with what takes long, with the slot closed."""
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
        trace_context=job.trace_context,
        deadline=datetime.now(UTC) + job.timeout,
        memory_mb=limit_mb,
        cpu_seconds=int(job.timeout.total_seconds()) * (os.cpu_count() or 1) + CPU_MARGIN_SECONDS,
    )
