"""The pool `ingest`: one capped process per job, and a verdict from evidence however it ends.

    run:   wait for memory -> spawn -> own (pidfd) -> open the gate -> wait: exit, deadline, cancel, shutdown, lost
           lease, memory -> bury (see `pools.life`) -> report

The supervisor is a subreaper, so every process that a job leaves behind becomes its child, is found by its mark, and
is killed and reaped. It never waits for "any child" and never forks: the template does (see `pools.template`).
"""

import asyncio
import logging
import math
import os
from collections.abc import Callable, Mapping

from jobs.app import App
from jobs.claim import ClaimedJob
from jobs.outcome import AttemptReport, Failed, JobError, Returned, Succeeded, Verdict
from jobs.subject import about, subject
from jobs.task import Pool
from pools import process, rehearsal, shm, startup
from pools.budget import MemoryBudget
from pools.cgroups import CgroupError, Leaves
from pools.errors import describe
from pools.evidence import ChildEvidence
from pools.execution import Execution, Intent, Report
from pools.frames import pack
from pools.household import Household
from pools.identity import Marks, Owner
from pools.life import Life, job_frame
from pools.nursery import Nursery
from pools.oom import OomWatch
from pools.options import IngestOptions, StartMethod
from pools.roster import Roster
from pools.scratch import ScratchFolders
from pools.spawner import Spawner
from pools.template_changes import TemplateChange, ignore
from pools.template_hold import SpawnFailed, TemplateError
from pools.user import resolve_user
from pools.verdict import SPAWN_RETRY, classify
from pools.watch import Watch

STOP_SECONDS = 12.0  # for all children to die at the end; one that survives SIGKILL is given up before that
LINGER_SECONDS = 2.0  # at the end, for what is still being removed; the next start sweeps what is left
# For memory to become free. What runs has five minutes by default, so the first in the queue gets its turn by then;
# what runs longer makes it pass to other workers.
ADMISSION_SECONDS = 300.0

log = logging.getLogger("oomph.ingest")


class IngestPool:
    """Runs each attempt in a process of its own. Implements `pools.execution.JobPool`.

    `app_spec` is what the template loads; `app` is the same app in this process. `memory_mb` caps each job beyond
    what the template itself holds, unless its task says otherwise. `env` replaces the template's environment;
    `on_template` is told when none comes up for long, and when one serves again.
    Raises `process.NotSupported` on a system that cannot own children.
    """

    def __init__(
        self,
        app_spec: str,
        app: App,
        *,
        memory_mb: int,
        slots: int,
        options: IngestOptions | None = None,
        env: Mapping[str, str] | None = None,
        on_template: Callable[[TemplateChange], None] = ignore,
    ) -> None:
        process.check_support()
        self.app = app
        self._app_spec = app_spec
        self.memory_mb = memory_mb
        self.slots = slots
        self._options = options or IngestOptions()
        self._owner = Owner.this_process()
        self._marks = Marks()
        self._spawner = Spawner(
            app_spec, os.environ if env is None else env, self._marks.template, self._options.start_method, on_template
        )
        self._roster = Roster(self._marks, lambda: self._spawner.pids)
        self._oom = OomWatch()
        self._house = Household(
            self._spawner,
            self._roster,
            self._oom,
            self._options,
            slots,
            ScratchFolders(self._options.scratch_path, self._owner),
        )
        self._nursery = Nursery(self._house)
        self._budget = MemoryBudget(self._options.budget_mb)
        self._fresh_mb = 0.0  # what an executed child has at its gate, as far as any was seen
        self._tasks: set[asyncio.Task[AttemptReport]] = set()
        self._running: set[Execution] = set()
        self._lingering: set[asyncio.Future[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = False
        self._watch = Watch(self._roster, self._oom)

    @property
    def template_up(self) -> bool:
        """A template serves, so a job can start at once."""
        return self._spawner.is_up

    @property
    def can_start(self) -> bool:
        """A job that is claimed now need not wait: a template serves, and nobody waits for memory."""
        return self._spawner.is_up and not self._budget.is_contended

    @property
    def template_mb(self) -> float | None:
        """The template's own data (VmData, MiB), which comes on top of every child's limit. None before the start."""
        return None if self._spawner.ready is None else self._spawner.ready.data_mb

    @property
    def share_mb(self) -> int:
        """MiB that each child may hold beyond its limit: pages of the template that it copies by writing to them."""
        if self._options.start_method is StartMethod.EXEC:
            return math.ceil(self._fresh_mb)
        return 0 if self._spawner.ready is None else math.ceil(self._spawner.ready.rss_mb)

    @property
    def template_restarts(self) -> int:
        """How many templates came up after the first."""
        return max(0, self._spawner.launched - 1)

    @property
    def children_memory_mb(self) -> list[float]:
        """What each child with its tree held when the watch last looked, within a second; MiB."""
        return [child.watched.used_mb for child in self._roster.children.values() if child.watched is not None]

    @property
    def children(self) -> int:
        """Children that live, or are dead and not yet judged."""
        return len(self._roster.children)

    async def start(self) -> None:
        """Make this process the owner of orphans, sweep what a dead worker left here, and start the template.

        Raises `process.NotSupported` where this system lacks what was asked for, `TemplateError` where the app does not
        load.
        """
        house, options = self._house, self._options
        process.adopt_orphans()
        house.user = resolve_user(options.user)
        try:
            house.scratches.prepare()
        except OSError as error:
            raise process.NotSupported(
                f"no scratch folder can be made in {house.scratches.parent} ({error.strerror}); set "
                "WORKER_INGEST_SCRATCH_PATH to one that this worker may write to"
            ) from error
        await house.threads.run(startup.sweep, options, house.scratches)
        if house.user is not None:
            await house.threads.run(startup.check_reach, house.user, self._app_spec, options.start_method)
        house.readable = startup.readable_paths(options.read_paths)
        house.writable = startup.writable_paths(options)
        try:
            house.leaves, of_leaves = Leaves.prepare(options.cgroup, self._owner)
        except CgroupError as error:
            raise process.NotSupported(str(error)) from error
        house.has_own_shm = shm.is_available()
        startup.say_what_encloses(
            options, house.scratches, self._marks, self._oom, house.leaves, of_leaves, has_own_shm=house.has_own_shm
        )
        await self._spawner.start()
        self._watch.start()
        self._check_room()
        if self._options.start_method is StartMethod.EXEC or self._options.user or self._options.read_paths:
            await self._rehearse()

    def begin(self, execution: Execution, report: Report) -> None:
        """Run one attempt as a task; see `run`."""
        execution.waits = True

        def ended(task: "asyncio.Task[AttemptReport]") -> None:
            self._tasks.discard(task)
            report(_report_of(task, execution))

        async def run() -> AttemptReport:
            subject.set(execution.job)  # of the task's own context, and of what it starts
            execution.redactor.hold()
            return await self.run(execution)

        task = asyncio.create_task(run(), name=f"job {execution.job.id}")
        self._tasks.add(task)
        task.add_done_callback(ended)

    def expect_more(self) -> None:
        """Have a child at hand for the job that will come next."""
        if not self._stopped:
            self._nursery.expect_more(self.memory_mb)

    async def run(self, execution: Execution) -> AttemptReport:
        """Run one attempt; return its report when no process of it is left, or when what is left lingers."""
        assert len(self._running) < self.slots, "more attempts than slots"
        self._running.add(execution)
        self._idle.clear()
        limit_mb = execution.handler.task.memory_mb or self.memory_mb
        held_mb = limit_mb + self.share_mb
        try:
            early = _unfit(execution, limit_mb) or await self._admit(execution, limit_mb, held_mb)
            if early is not None:
                return early
            return await self._live(execution, limit_mb, held_mb)
        except SpawnFailed as failure:
            why = str(failure)
            log.warning("job %d attempt %d did not start: %s", execution.job.id, execution.job.attempt, why)
            return AttemptReport(Returned(Verdict.SPAWN_FAILED, why, SPAWN_RETRY), {"certainty": "certain", "why": why})
        finally:
            self._running.discard(execution)
            if not self._running:
                self._idle.set()

    def kill_everything(self, intent: Intent = Intent.LEASE_LOST) -> None:
        """Record `intent` and kill every child with its tree, from any thread, also while the loop is blocked."""
        # Copies, made in one step each: the loop may go on changing the originals.
        executions, children = tuple(self._running), tuple(self._roster.children.values())
        for execution in executions:
            if execution.intent is None:
                execution.intent = intent
        for child in children:
            child.kill()
        for child in children:
            if not child.is_given_up:
                child.kill_tree(self._roster.owned())

    async def stop(self) -> None:
        """End every attempt as released, then the template. Leaves no process and no descriptor. Safe to call twice."""
        if self._stopped:
            return
        self._stopped = True
        for execution in tuple(self._running):
            execution.stop(Intent.SHUTDOWN)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._idle.wait()
        except TimeoutError:
            log.error("attempts %s do not end; leaving them behind", [run.job.id for run in self._running])
        if self._lingering:
            await asyncio.wait(self._lingering, timeout=LINGER_SECONDS)
            for lingering in tuple(self._lingering):
                lingering.cancel()
        if self._roster.children:
            log.error("children %s survive SIGKILL; leaving them behind", list(self._roster.children))
        # Together: with its template gone, a birth is over at once.
        await asyncio.gather(self._nursery.stop(), self._spawner.stop())
        await self._watch.look_around()
        await self._watch.look_around()  # the next look reaps what the one before has killed
        await self._watch.stop()
        await self._house.threads.run(self._close_folders)
        self._house.threads.stop()
        self._house.disk.stop()

    async def _admit(self, execution: Execution, limit_mb: int, held_mb: int) -> AttemptReport | None:
        """Hold the attempt's memory. Returns its report where it is stopped first; raises `SpawnFailed` in vain."""
        if not self._budget.fits_ever(held_mb):
            raise SpawnFailed(
                f"its {limit_mb} MB and {held_mb - limit_mb} MB of the template can never fit into the "
                f"{self._budget.total_mb} MB that this worker has for its children"
            )
        if await self._budget.take(held_mb, ADMISSION_SECONDS, execution.stopping):
            return None
        if execution.intent is not None:
            return classify(ChildEvidence(intent=execution.intent, limit_mb=limit_mb, timeout=execution.job.timeout))
        raise SpawnFailed(f"no {held_mb} MB became free within {ADMISSION_SECONDS:g} s")

    async def _live(self, execution: Execution, limit_mb: int, held_mb: int) -> AttemptReport:
        try:
            newborn = await self._nursery.take(limit_mb)
        except BaseException:
            self._budget.give_back(held_mb)
            raise
        life = Life(self._house, newborn, execution, limit_mb)
        # Shielded: also an attempt that is itself cancelled owns its child until that is dead and reaped.
        running = asyncio.ensure_future(life.run())
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            execution.stop(Intent.SHUTDOWN)
            await asyncio.gather(running, return_exceptions=True)
            raise
        finally:
            self._fresh_mb = max(self._fresh_mb, life.child.baseline.held / 1024)
            self._when_gone(execution, newborn.mark, held_mb)

    def _when_gone(self, execution: Execution, mark: int, held_mb: int) -> None:
        """Give mark and memory back, now or when nothing of the attempt lingers."""

        def give_back(lingering: "asyncio.Future[None] | None" = None) -> None:
            if lingering is not None:
                self._lingering.discard(lingering)
            self._marks.give_back(mark)
            self._budget.give_back(held_mb)

        if execution.lingering is None:
            give_back()
        else:
            self._lingering.add(execution.lingering)
            execution.lingering.add_done_callback(give_back)

    def _check_room(self) -> None:
        """Say it where the template's share makes fewer slots fit; raise `NotSupported` where none would."""
        total_mb, each_mb = self._budget.total_mb, self.memory_mb + self.share_mb
        if total_mb is None or self.slots * each_mb <= total_mb or not self.app.kinds(Pool.INGEST):
            return
        told = f"a child of {self.memory_mb} MB with {self.share_mb} MB of the template"
        if each_mb > total_mb:
            raise process.NotSupported(
                f"{told} does not fit into the {total_mb} MB for ingest children; lower WORKER_INGEST_MEMORY_MB or "
                "preload less"
            )
        log.warning("%s: only %d of %d slots fit into %d MB at once", told, total_mb // each_mb, self.slots, total_mb)

    async def _rehearse(self) -> None:
        """Prove with a first child that children can be enclosed as wanted, and that the app loads in one."""
        report = await self.run(_rehearsal())
        if not isinstance(report.outcome, Succeeded):
            why = getattr(report.outcome, "why", None) or report.evidence.get("why", "?")
            await self._spawner.stop()
            raise TemplateError(f"a first child could not run: {why} {report.process.output_tail[-2000:]}".rstrip())

    def _close_folders(self) -> None:
        """In a thread."""
        if self._house.leaves is not None:
            self._house.leaves.close()
        if not self._roster.children:
            self._house.scratches.close()


def _unfit(execution: Execution, limit_mb: int) -> AttemptReport | None:
    """The report of a job that cannot even be sent."""
    try:
        pack(job_frame(execution.job, limit_mb))
    except ValueError as error:
        return AttemptReport(Failed(JobError("InvalidPayload", f"the payload is too long: {error}"), True))
    return None


def _rehearsal() -> Execution:
    """An attempt that succeeds unless no job could."""
    timeout = rehearsal.HANDLER.task.timeout
    job = ClaimedJob(0, 0, rehearsal.KIND, Pool.INGEST, payload="{}", attempt=1, max_attempts=1, timeout=timeout)
    return Execution(job, rehearsal.HANDLER, lambda *_: None)


def _report_of(task: "asyncio.Task[AttemptReport]", execution: Execution) -> AttemptReport:
    if task.cancelled():  # nobody here does that: a handler has cancelled what is not its own
        told = about(execution.job)
        log.error("job %s: its attempt was cancelled from within the worker", execution.job.id, extra=told)
        return AttemptReport(Returned(Verdict.RELEASED, "a handler cancelled the tasks of the worker"))
    if (error := task.exception()) is not None:
        # A fault of ours: whatever a job does is a report. The job must not hang on it.
        log.error("job %s: its pool failed", execution.job.id, exc_info=error, extra=about(execution.job))
        return AttemptReport(Failed(describe(error)))
    return task.result()
