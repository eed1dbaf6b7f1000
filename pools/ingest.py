"""The pool `ingest`: one capped process per job, and a verdict from evidence however it ends.

    run:   spawn -> own (pidfd) -> open the gate -> wait: exit, deadline, cancel, shutdown, lost lease, memory
    death: pidfd readable -> drain socket and pipe -> read the OOM counters -> kill what is left of the tree
           -> wait4 -> classify -> report

The supervisor is a subreaper, so every process that a job leaves behind becomes its child, is found by its mark, and
is killed and reaped. It never waits for "any child" and never forks: the template does (see `pools.template`).
"""

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from jobs.app import App
from jobs.outcome import AttemptReport, Failed, JobError, Returned, Verdict
from jobs.store import ClaimedJob
from pools import process
from pools.execution import Execution, Intent
from pools.frames import JobFrame, pack
from pools.memory import Baseline, OomWatch
from pools.ownership import OwnedChild
from pools.spawner import Spawner, SpawnFailed
from pools.verdict import SPAWN_RETRY, classify
from pools.watch import WATCH_SECONDS, Watched, look

STUCK_SECONDS = 30.0  # after SIGKILL: only a process in uninterruptible sleep lives so long, and only a person can help
STOP_SECONDS = 10.0  # for all children to die at the end; shutdown does not wait for a stuck one

T = TypeVar("T")

log = logging.getLogger("oomph.ingest")


class IngestPool:
    """Runs each attempt in a process of its own. Implements `pools.execution.JobPool`.

    `app_spec` is what the template loads; `app` is the same app in this process. `memory_mb` caps each job beyond
    what the template itself holds, unless its task says otherwise. `env` replaces the template's environment.
    """

    def __init__(
        self, app_spec: str, app: App, *, memory_mb: int, slots: int, env: Mapping[str, str] | None = None
    ) -> None:
        self.app = app
        self.memory_mb = memory_mb
        self.slots = slots
        self._spawner = Spawner(app_spec, os.environ if env is None else env)
        self._running: set[Execution] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._children: dict[int, OwnedChild] = {}
        self._marks: set[int] = set()
        self._oom = OomWatch()
        self._watcher: asyncio.Task[None] | None = None
        # Its own threads: the loop's default ones may all be held by handlers of the other pools.
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="oomph-ingest")

    @property
    def template_up(self) -> bool:
        """A template serves, so a job can start at once."""
        return self._spawner.is_up

    @property
    def template_mb(self) -> float | None:
        """The template's own data (VmData, MiB), which comes on top of every child's limit. None before the start."""
        return None if self._spawner.ready is None else self._spawner.ready.data_mb

    @property
    def children(self) -> int:
        """Children that live, or are dead and not yet judged."""
        return len(self._children)

    async def start(self) -> None:
        """Make this process the owner of orphans, and start the template.

        Raises `process.NotSupported` on a system without what that needs, `TemplateError` where the app does not load.
        """
        process.check_support()
        process.adopt_orphans()
        for name in self._oom.blind_to:
            log.warning("the OOM counter of %s cannot be read: a SIGKILL will often stay unexplained", name)
        self._oom.tick()
        await self._spawner.start()
        self._watcher = asyncio.create_task(self._watch(), name="oomph ingest watch")

    async def run(self, execution: Execution) -> AttemptReport:
        """Run one attempt; return its report when no process of it is left."""
        assert len(self._running) < self.slots, "more attempts than slots"
        self._running.add(execution)
        self._idle.clear()
        mark = 1 + secrets.randbelow(self._spawner.mark - 1)
        self._marks.add(mark)
        try:
            return await self._attempt(execution, mark)
        except SpawnFailed as failure:
            why = str(failure)
            log.warning("job %d attempt %d did not start: %s", execution.job.id, execution.job.attempt, why)
            return AttemptReport(Returned(Verdict.SPAWN_FAILED, why, SPAWN_RETRY), {"certainty": "certain", "why": why})
        finally:
            self._marks.discard(mark)
            self._running.discard(execution)
            if not self._running:
                self._idle.set()

    def kill_everything(self, intent: Intent = Intent.LEASE_LOST) -> None:
        """Record `intent` and kill every child with its tree, from any thread, also while the loop is blocked."""
        # Copies, made in one step each: the loop may go on changing the originals.
        executions, children = tuple(self._running), tuple(self._children.values())
        for execution in executions:
            if execution.intent is None:
                execution.intent = intent
        for child in children:
            child.kill()
        for child in children:
            child.kill_tree(self._owned())

    async def stop(self) -> None:
        """End every attempt as released, then the template. Leaves no process and no descriptor."""
        for execution in tuple(self._running):
            execution.stop(Intent.SHUTDOWN)
        try:
            await asyncio.wait_for(self._idle.wait(), STOP_SECONDS)
        except TimeoutError:
            log.error("children %s survive SIGKILL; leaving them behind", list(self._children))
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        await self._spawner.stop()
        await self._look_around()
        self._threads.shutdown()

    async def _attempt(self, execution: Execution, mark: int) -> AttemptReport:
        limit_mb = execution.handler.task.memory_mb or self.memory_mb
        try:
            frame = pack(_job_frame(execution.job, limit_mb))
        except ValueError as error:
            return AttemptReport(Failed(JobError("InvalidPayload", f"the payload is too long: {error}"), True))
        child = await OwnedChild.born(execution, self._spawner, mark, limit_mb)
        self._children[child.pid] = child
        # Shielded: also an attempt that is itself cancelled owns its child until that is dead and reaped.
        life = asyncio.ensure_future(self._live(child, frame))
        try:
            return await asyncio.shield(life)
        except asyncio.CancelledError:
            execution.stop(Intent.SHUTDOWN)
            await asyncio.gather(life, return_exceptions=True)
            raise

    async def _live(self, child: OwnedChild, frame: bytes) -> AttemptReport:
        """From the gate to the report; afterwards the child and its tree are dead and reaped."""
        unopened: str | None = "it was stopped at its gate"
        try:
            child.baseline = await self._in_thread(Baseline.of, child.pid)
            if child.execution.intent is None:
                unopened = await child.open_gate(frame)
            if unopened is None:
                await self._until_end(child)
        finally:
            child.kill()
            report = await self._bury(child)
        if unopened is not None and child.intent_at_exit is None:
            raise SpawnFailed(unopened)
        return report

    async def _until_end(self, child: OwnedChild) -> None:
        execution = child.execution
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

    async def _bury(self, child: OwnedChild) -> AttemptReport:
        while not child.exited.is_set():
            try:
                await asyncio.wait_for(child.exited.wait(), STUCK_SECONDS)
            except TimeoutError:
                log.error("child %d survives SIGKILL (uninterruptible sleep?); its slot stays taken", child.pid)
        child.stop_hearing()
        before, after = self._oom.before(), self._oom.read()
        cull = await self._in_thread(child.tree.kill, self._owned())
        if cull.survivors:
            log.error("job %d left processes that survive SIGKILL: %s", child.execution.job.id, cull.survivors)
        for pid in cull.dead:
            process.reap(pid)
        ending = child.reap()
        del self._children[child.pid]
        evidence = child.evidence(ending, before, after)
        if evidence.signal == signal.SIGKILL and evidence.intent is None:
            evidence = replace(evidence, unexplained_kills=self._oom.count_unexplained_kill())
        return classify(evidence)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self._oom.tick()
            try:
                await self._look_around()
            except Exception:  # the next look may succeed, and without a watch nothing caps a whole tree
                log.exception("the memory watch could not look")

    async def _look_around(self) -> None:
        watched = [Watched(child.tree, child.baseline, child.limit_mb) for child in self._children.values()]
        sight = await self._in_thread(look, watched, self._owned(), {*self._marks, self._spawner.mark})
        for pid, used_mb in sight.used_mb.items():
            child = self._children.get(pid)
            if child is None or child.exited.is_set():
                continue
            child.note_memory(used_mb)
            if used_mb > child.limit_mb:
                child.execution.stop(Intent.MEMORY)
        # A child being born may be among them: until we are told its pid, none is known to be a stranger.
        if not self._spawner.is_busy:
            for stray in sight.dead_strays:
                if stray.pid not in self._owned():
                    process.reap(stray.pid)

    def _owned(self) -> set[int]:
        template = self._spawner.pid
        return {*tuple(self._children), *(() if template is None else (template,))}

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


def _job_frame(job: ClaimedJob, limit_mb: int) -> JobFrame:
    return JobFrame(
        supervisor=os.getpid(),
        id=job.id,
        claim=job.claim,
        kind=job.kind,
        payload=job.payload,
        attempt=job.attempt,
        organization_id=job.organization_id,
        deadline=datetime.now(UTC) + job.timeout,
        memory_mb=limit_mb,
    )
