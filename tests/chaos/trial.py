"""One worker with armed failpoints meets every situation it may meet; then others clean up, and the checker judges."""

import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg

from jobs import ControlError, cancel, enqueue, pause, resume
from jobs.failpoints import OF_DOCUMENTS, STALL_SECONDS, Failpoint
from supervisor.testing.processes import WorkerProcess
from tests.chaos.app import AGENT, GRIDS, HURRIED, INGEST, SKIPPING, SYSTEM, TICKS, URL, Ordeal
from tests.chaos.checker import check
from tests.chaos.history import Halt, read
from tests.chaos.processes import Processes

TRIAL_SECONDS = 90.0  # on a machine with other work; most take five
LEASE_SECONDS = 5.0
ZOMBIE_SECONDS = 3.0
LOOK_SECONDS = 1.0  # between two looks, or a little less
SETTINGS = {
    "WORKER_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
    "WORKER_SHUTDOWN_SECONDS": "0.5",
    "WORKER_INGEST_MEMORY_MB": "200",
    "WORKER_CALL_TIMEOUT_SECONDS": "8",
}
AT_SHUTDOWN = {Failpoint.DRAINED, Failpoint.RELEASED, Failpoint.DEREGISTERED}
AT_LOSS = {Failpoint.LEASE_LOST, Failpoint.TENURE_LOST}
# Each new template, and each child, is armed anew: such a worker never gets well, so a healthy one joins it.
IN_CHILDREN = {Failpoint.SPAWNED, Failpoint.RETURNED, Failpoint.TOLD}
LEFT = (  # occurrences come for ever; of them only those count that a dead worker has left behind
    "SELECT id FROM background_jobs WHERE status IN ('queued', 'running') AND (kind <> ALL (%s) "
    "OR worker_id IN (SELECT id FROM background_workers WHERE pid = %s) AND status = 'running' AND %s)"
)
STEAL = (  # as if a claim had been committed whose answer never came
    "UPDATE background_jobs SET status = 'running', claim = claim + 1, attempt = attempt + 1, "
    "started_at = clock_timestamp(), worker_id = %s WHERE id = %s"
)
LOCK = "SELECT FROM background_workers WHERE pid = %s AND lost_at IS NULL FOR UPDATE"
DEAD_WORKER = (
    "INSERT INTO background_workers (id, host, pid, version, pools, kinds, lease_until) "
    "VALUES (gen_random_uuid(), 'elsewhere', 1, '0', '{}', '{}', clock_timestamp() + interval '1 s') RETURNING id"
)


@dataclass
class Trial:
    """`armed`: the places and the action, as WORKER_FAILPOINTS has it."""

    url: str
    folder: Path
    places: frozenset[Failpoint]
    action: str
    reached: set[Failpoint] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)
    status: int | None = None
    zombies: int = 0

    def run(self) -> "Trial":
        """Everything, with nothing left running afterwards."""
        with psycopg.connect(self.url, autocommit=True) as self._db:
            self._workers: list[WorkerProcess] = []
            self._enqueued: set[int] = set()
            self._processes = Processes()
            self._halts: dict[int | str, Halt] = {}  # by a worker's pid: its end; by a place: a stall there
            try:
                self._prepare()
                self._live()
                self._end()
                history = read(
                    self._db,
                    endless_kinds=frozenset(task.kind for task in TICKS),
                    enqueued=frozenset(self._enqueued),
                    sightings=self._processes.sightings,
                    halts=list(self._halts.values()),
                    grids=GRIDS,
                    skipping=SKIPPING,
                    outages=[(0.0, time.time())],  # the only worker is broken all the time
                )
                self.violations += [str(violation) for violation in check(history)]
            finally:
                for worker in self._workers:
                    if worker.process.poll() is None:
                        worker.process.kill()
                    worker.wait()
        return self

    def logs(self) -> str:
        return "\n".join(worker.text()[-6000:] for worker in self._workers)

    def _prepare(self) -> None:
        for do in ("wait", "effect", "fail"):
            self._put(AGENT, do, 0.1)
        for do in ("wait", "effect", "die"):
            self._put(INGEST, do, 0.1)
        if Failpoint.INTENDED in self.places:
            self._put(HURRIED, "wait", 2)
        self._to_cancel = self._put(AGENT, "wait", 60) if Failpoint.CANCEL_READ in self.places else None
        if Failpoint.RENEWED in self.places:  # longer than a lease that nobody renews
            self._put(AGENT, "wait", LEASE_SECONDS + 1)
            self._put(INGEST, "wait", LEASE_SECONDS + 1)
        if Failpoint.PROGRESS_WRITTEN in self.places:  # longer than progress is gathered
            self._put(AGENT, "wait", 2)
        if self.places & {Failpoint.LOSS_MARKED, Failpoint.RESCUE_WRITTEN, Failpoint.RESCUE_COMMITTED}:
            (dead,) = self._row(DEAD_WORKER)
            self._db.execute(STEAL, [dead, self._put(AGENT, "wait", 0.1)])
        self._victim = self._start(",".join(f"{place}:{self.action}" for place in sorted(self.places)))

    def _live(self) -> None:
        """Until every place was reached that can be before a shutdown, and nothing is left."""
        until = time.monotonic() + TRIAL_SECONDS
        wanted = self.places - AT_SHUTDOWN
        provoked = False
        while time.monotonic() < until:
            self._look()
            hit = wanted <= self.reached
            if self._is_dead(self._victim) or (hit and self.places & IN_CHILDREN):
                self._ensure_peer()
            elif not provoked and "ready: worker" in self._victim.text():
                provoked = self._provoke()
            elif self.places & AT_LOSS and not hit:
                # Usually the keeper sees it first; where the loop does, the next lease is lost as well.
                self._lose_lease()
            left = self._left()
            if hit and not left:
                return
            time.sleep(0.1)
        if left := self._left():
            self.violations.append(f"not over within {TRIAL_SECONDS:g} s: reached {self.reached}, left {left}")

    def _provoke(self) -> bool:
        """Bring about what does not happen by itself."""
        if self._to_cancel is not None:
            (status,) = self._row("SELECT status FROM background_jobs WHERE id = %s", self._to_cancel)
            if status != "running":
                return False
            cancel(self._db, self._to_cancel, actor="trial")
        if Failpoint.PROBE_CLAIMED in self.places:
            pause(self._db, SYSTEM.kind, actor="trial")
            self._put(SYSTEM, "wait", 0.1)
            resume(self._db, SYSTEM.kind, actor="trial", probe=True)
        if Failpoint.UNKNOWN_FOUND in self.places:
            with self._db.transaction():
                job = self._put(AGENT, "wait", 0.1)
                (worker,) = self._row("SELECT id FROM background_workers WHERE lost_at IS NULL AND pid <> 1")
                self._db.execute(STEAL, [worker, job])
        if self.places & AT_LOSS:
            self._put(AGENT, "wait", 1)
            self._lose_lease()
        return True

    def _lose_lease(self) -> None:
        """Nobody can renew it until it is over; marking it as lost would end jobs that their owner rightly runs."""
        with psycopg.connect(self.url) as holder:
            holder.execute(LOCK, [self._victim.pid])
            time.sleep(LEASE_SECONDS)

    def _lasting_zombies(self) -> int:
        """Its dead children that nobody reaps. Every child is one for a moment, one that waited for up to a second."""
        dead: set[int] | None = None
        until = time.monotonic() + ZOMBIE_SECONDS
        while dead is None or (dead and time.monotonic() < until):
            children = psutil.Process(self._victim.pid).children()
            now = {child.pid for child in children if child.status() == psutil.STATUS_ZOMBIE}
            dead = now if dead is None else dead & now
            time.sleep(0.05)
        return len(dead)

    def _end(self) -> None:
        """SIGTERM while something runs; whatever that leaves is finished by another worker."""
        long = []
        if self.places & AT_SHUTDOWN:
            long = [self._put(AGENT, "wait", 60), self._put(INGEST, "wait", 60)]
            self._wait(lambda: self._running() >= len(long), "the long jobs run")
        if not self._is_dead(self._victim):
            with suppress(psutil.NoSuchProcess):
                self.zombies = self._lasting_zombies()
            self._victim.signal(signal.SIGTERM)
        self._wait(lambda: self._is_dead(self._victim), "the victim ends")
        self.status = self._victim.process.poll()
        self._look()
        for job in long:
            with suppress(ControlError):
                cancel(self._db, job, actor="trial")
        if self._left():
            self._ensure_peer()
        self._wait(lambda: not self._left(), "nothing is left")
        for peer in self._workers[1:]:
            self._wait(lambda peer=peer: "ready: worker" in peer.text(), "the peer is ready")
            if (status := peer.stop()) != 0:
                self.violations.append(f"the peer ended with status {status}")

    def _left(self) -> list[int]:
        paused = self._db.execute("SELECT kind FROM background_kinds WHERE paused_at IS NOT NULL").fetchall()
        for (kind,) in paused if Failpoint.PROBE_CLAIMED not in self.places - self.reached else []:
            with suppress(ControlError):
                resume(self._db, kind, actor="trial")
        values = [[task.kind for task in TICKS], self._victim.pid, self._is_dead(self._victim)]
        return [row[0] for row in self._db.execute(LEFT, values).fetchall()]

    def _running(self) -> int:
        (count,) = self._row(
            "SELECT count(*) FROM background_jobs WHERE status = 'running' AND kind <> ALL (%s)",
            [task.kind for task in TICKS],
        )
        return int(count)

    def _look(self) -> None:
        for worker in self._workers:
            if not self._is_dead(worker):
                self._processes.look(worker.pid)
            else:
                self._halts.setdefault(worker.pid, Halt(worker.pid, time.time(), float("inf")))
        self._processes.look_again()
        for name in re.findall(r"failpoint ([\w-]+): ", self._victim.text()):
            self.reached.add(Failpoint(name))
            if self.action == "stall":
                now = time.time()
                self._halts.setdefault(name, Halt(self._victim.pid, now - LOOK_SECONDS, now + STALL_SECONDS))

    def _wait(self, look: Any, what: str) -> None:
        until = time.monotonic() + TRIAL_SECONDS / 2
        while not look():
            if time.monotonic() > until:
                self.violations.append(f"not within {TRIAL_SECONDS / 2:g} s: {what}")
                return
            self._look()
            time.sleep(0.05)

    def _ensure_peer(self) -> None:
        if len(self._workers) == 1:
            self._start("")

    def _start(self, armed: str) -> WorkerProcess:
        log = self.folder / f"{min(self.places)}-{self.action}-{len(self._workers)}.log"
        names = {**SETTINGS, "WORKER_FAILPOINTS": armed, URL: self.url}
        self._workers.append(WorkerProcess(self.url, "tests.chaos.app:app", log, names))
        return self._workers[-1]

    def _is_dead(self, worker: WorkerProcess) -> bool:
        return worker.process.poll() is not None

    def _put(self, task: Any, do: str, seconds: float) -> int:
        job: int = enqueue(self._db, task, Ordeal(do=do, seconds=seconds))
        self._enqueued.add(job)
        return job

    def _row(self, query: Any, *values: Any) -> tuple[Any, ...]:
        row: tuple[Any, ...] | None = self._db.execute(query, values).fetchone()
        assert row is not None
        return row


def groups(action: str, *, alone: bool) -> Iterable[frozenset[Failpoint]]:
    """Which places are armed together. A process dies once, so a kill has a worker of its own."""
    single = {Failpoint.SCHEDULES_SYNCED, Failpoint.REGISTERED, Failpoint.RENEWED} | AT_LOSS | AT_SHUTDOWN | IN_CHILDREN
    places = [place for place in Failpoint if place not in OF_DOCUMENTS]
    if action == "kill" or alone:
        return [frozenset({place}) for place in places]
    shared = [place for place in places if place not in single]
    return [frozenset({place}) for place in single] + [frozenset(shared[i : i + 3]) for i in range(0, len(shared), 3)]
