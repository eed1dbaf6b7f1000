"""The supervisor's hold on one child: its pidfd, its job socket, its output, and what was measured of it."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from jobs.subject import about
from pools import process
from pools.cgroups import Leaf
from pools.evidence import ChildEvidence
from pools.execution import Execution, Intent
from pools.frames import FrameReader, Success
from pools.intake import FRAMES, Intake
from pools.leftovers import Tree
from pools.memory import Baseline, Gauge
from pools.newborn import Newborn
from pools.oom import OomCounters
from pools.output import Output
from pools.scratch import Scratch
from pools.stacks import DUMP_END, DUMP_SIGNAL
from pools.template_hold import START_SECONDS

GATE_SECONDS = 10.0  # for a child to take its job frame, and again to begin with it; it does nothing else
LEADER_SECONDS = 1.0  # for a killed child to be dead, where somebody waits for it
DUMP_SECONDS = 0.5  # for its stacks at the deadline; a job that is over its time gets no more of it


@dataclass
class Watched:
    """What the watch must know of one child, and keeps between its looks."""

    tree: Tree
    gauge: Gauge
    processes: int
    threads: int
    scratch_device: int
    born_at: float = field(default_factory=time.time)
    used_mb: float = 0.0
    looked_at: float = 0.0
    due: float = 0.0


@dataclass(eq=False)
class OwnedChild:
    """A child from the moment it has a job until it is reaped.

    `kill` and `kill_tree` are safe from any thread, everything else belongs to the loop.
    """

    execution: Execution
    tree: Tree
    limit_mb: int
    pidfd: int
    gate: socket.socket
    output: Output
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    on_exit: Callable[[], None] | None = None
    intent_at_exit: Intent | None = None  # whatever is asked for after the exit came too late to be its cause
    frames: FrameReader = field(default_factory=FrameReader)
    baseline: Baseline = field(default_factory=Baseline)
    last_mb: float | None = None
    peak_mb: float | None = None
    scratch: Scratch | None = None
    scratch_mb: int = 0
    unlinked_mb: float = 0.0  # in files of its scratch folder that are deleted and still open
    leaf: Leaf | None = None
    watched: Watched | None = None
    over: str = ""  # what of its limits it went over, in words
    leftovers: str = ""  # what of its tree outlived its burial, in words
    gate_opened: bool = False
    is_given_up: bool = False  # it survives SIGKILL, and nobody waits for it any more
    at_gate: asyncio.Event = field(default_factory=asyncio.Event)
    is_reaped: bool = False
    _frame_intake: Intake = field(init=False)
    _output_intake: Intake = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, newborn: Newborn, execution: Execution, limit_mb: int) -> "OwnedChild":
        """Give a newborn its job."""
        job = execution.job
        newborn.hand_over()
        output = Output(f"job {job.id} attempt {job.attempt}", execution.redactor, **about(job))
        child = cls(execution, Tree(newborn.pid, newborn.mark), limit_mb, newborn.pidfd, newborn.gate, output)
        child.baseline = newborn.baseline
        child.scratch, child.leaf = newborn.scratch, newborn.leaf
        child._frame_intake = Intake(newborn.frames_fd, child._take_frames, FRAMES)
        child._output_intake = Intake(newborn.output_fd, output.take)
        asyncio.get_running_loop().add_reader(newborn.pidfd, child._has_exited)
        return child

    @property
    def pid(self) -> int:
        return self.tree.leader

    @property
    def has_succeeded(self) -> bool:
        """Whether its result is there and it ended as it should, seen from the end until it is reaped."""
        return isinstance(self.frames.last, Success) and process.ended_well(self.pidfd)

    async def send(self, data: bytes) -> str | None:
        """Hand over its setup or its job. Returns what went wrong, if anything did."""
        try:
            async with asyncio.timeout(GATE_SECONDS):
                await asyncio.get_running_loop().sock_sendall(self.gate, data)
        except (TimeoutError, OSError) as error:
            return f"the child did not take its job: {error!r}"
        return None

    async def wait_at_gate(self) -> str | None:
        """Wait until a child that loads the app itself has done so. Returns what went wrong, if anything did."""
        events = [
            asyncio.ensure_future(waiting)
            for waiting in (self.at_gate.wait(), self.exited.wait(), self.execution.stopping())
        ]
        try:
            await asyncio.wait(events, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for event in events:
                event.cancel()
        if self.at_gate.is_set():
            return None
        if self.exited.is_set():
            return "the child ended before it reached its gate"
        return f"the child did not load the app within {START_SECONDS:g} s"

    async def dump_stacks(self) -> None:
        """Ask for the stacks of all threads and tasks, and wait a moment for them."""
        self.output.expect_dump(DUMP_END)
        with self._lock:
            if not self.is_reaped:
                process.send(self.pidfd, DUMP_SIGNAL)
        await self.output.wait_for_dump(DUMP_SECONDS)
        self._output_intake.drain()

    def kill(self) -> None:
        """SIGKILL the child and its group. What left the group is ended with `tree.kill` once the child is dead."""
        with self._lock:
            if not self.is_reaped:
                if self.leaf is not None:
                    self.leaf.kill()
                process.send(self.pidfd, signal.SIGKILL)
                process.kill_group(self.pid)

    def kill_tree(self, owned: Collection[int]) -> None:
        """Kill the child and all of its tree, and wait for their deaths: for when the loop cannot see to it.

        Holds off `reap` meanwhile, since a leader's pid identifies its session only until it is given back.
        """
        self.kill()
        with self._lock:
            if not self.is_reaped:
                process.kill_and_wait([self.pidfd], time.monotonic() + LEADER_SECONDS)
                self.tree.kill(owned)

    def stop_hearing(self) -> None:
        """Take the frames that the dead child has sent. What a helper may write to its socket later is no frame."""
        self._frame_intake.drain()
        self._frame_intake.close()

    def note_memory(self, used_mb: float) -> None:
        self.last_mb = used_mb
        self.peak_mb = max(used_mb, self.peak_mb or 0)

    def reap(self) -> process.Ending | None:
        """Give the pid back to the kernel; no signal is sent to it afterwards."""
        with self._lock:
            ending = process.reap(self.pid)
            self.is_reaped = True
            asyncio.get_running_loop().remove_reader(self.pidfd)
            os.close(self.pidfd)
        self._output_intake.drain()
        self._output_intake.close()
        self.output.finish()
        self.gate.close()
        return ending

    def evidence(
        self,
        ending: process.Ending | None,
        before: OomCounters,
        after: OomCounters,
        cgroup_peak_mb: float | None = None,
    ) -> ChildEvidence:
        """All that is known, once the child is reaped or given up. `before` and `after` enclose its death."""
        peak_mb = self.peak_mb
        if ending is not None:
            # The kernel's peak is of the largest process, and starts with what the template had: approximate.
            peak_mb = max(peak_mb or 0, (ending.peak_kb - self.baseline.peak) / 1024)
        return ChildEvidence(
            intent=self.intent_at_exit if self.exited.is_set() else self.execution.intent,
            has_started=self.frames.has_started,
            frame=self.frames.last,
            broken_frame=self.frames.broken,
            status=None if ending is None else ending.status,
            survives=not self.exited.is_set(),
            leftovers=self.leftovers,
            before=before,
            after=after,
            limit_mb=self.limit_mb,
            last_mb=self.last_mb,
            peak_mb=peak_mb,
            cgroup_peak_mb=cgroup_peak_mb,
            over=self.over,
            cpu_seconds=None if ending is None else ending.cpu_seconds,
            pid=self.pid,
            output_tail=self.output.tail,
            stacks=self.output.dump,
            timeout=self.execution.job.timeout,
        )

    def _take_frames(self, data: bytes) -> int:
        before = self.frames.count
        progress = self.frames.feed(data)
        if self.frames.at_gate:
            self.at_gate.set()
        if progress is not None:
            self.execution.publish(progress.fraction, progress.note)
        return self.frames.count - before

    def _has_exited(self) -> None:
        asyncio.get_running_loop().remove_reader(self.pidfd)
        self.intent_at_exit = self.execution.intent
        self.exited.set()
        if self.on_exit is not None:
            self.on_exit()
