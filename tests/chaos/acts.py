"""Does one step of the plan on the stage, and says in a few words what became of it."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from jobs import ControlError, Priority, cancel, enqueue, pause, resume, retry
from tests.chaos.app import TASKS
from tests.chaos.plan import NewJob, Step, What
from tests.chaos.stage import Seat, Stage

ACTOR = "chaos"
RECOVERY_SECONDS = 8.0  # after trouble has ended: until a worker's reactions are a measure again
TROUBLE_SECONDS = 10.0  # the longest that a plan leaves a network or a template so, and a little
SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'oomph%' ORDER BY pid"


@dataclass(frozen=True, slots=True)
class Kill:
    """A child that we killed while nothing else troubled its worker."""

    job: int
    at: float


class Actor:
    """Counts what was done, and remembers what the checker must know of it."""

    def __init__(self, stage: Stage) -> None:
        self.done: Counter[str] = Counter()
        self.enqueued: set[int] = set()
        self.rolled_back: set[str] = set()
        self.kills: list[Kill] = []
        self._stage = stage
        self._stopped: dict[Step, list[int]] = {}
        self._acts: dict[What, Callable[[Seat, Step], str | None]] = {
            What.ENQUEUE: self._enqueue,
            What.ENQUEUE_AND_ROLL_BACK: self._enqueue_and_roll_back,
            What.KILL_CHILD: self._kill_child,
            What.STOP_CHILD: self._stop_child,
            What.KILL_TEMPLATE: lambda seat, _: self._signal_template(seat, signal.SIGKILL),
            What.STOP_TEMPLATE: lambda seat, _: self._signal_template(seat, signal.SIGSTOP),
            What.KILL_SUPERVISOR: lambda seat, _: self._signal(seat, signal.SIGKILL),
            What.STOP_SUPERVISOR: lambda seat, _: self._signal(seat, signal.SIGSTOP),
            What.DEPLOY: self._deploy,
            What.START: lambda seat, _: self._start(seat),
            What.CONTINUE: lambda seat, _: self._continue(seat),
            What.CUT: lambda seat, _: self._network(seat, seat.proxy.cut),
            What.FREEZE: lambda seat, _: self._network(seat, seat.proxy.freeze),
            What.SLOW: lambda seat, step: self._network(seat, lambda: seat.proxy.slow(0.02 + 0.3 * step.value)),
            What.HEAL: lambda seat, _: self._network(seat, seat.proxy.heal),
            What.TERMINATE_SESSIONS: self._terminate_sessions,
            What.KILL_BACKEND: self._kill_backend,
            What.RESTART_POSTGRESQL: lambda _, __: self._restart(signal.SIGINT),
            What.CRASH_POSTGRESQL: lambda _, __: self._restart(signal.SIGQUIT),
            What.CANCEL: self._cancel,
            What.RETRY: self._retry,
            What.PAUSE: self._pause,
            What.RESUME: lambda _, step: self.resume_all(probe=step.value < 0.3),
        }

    def do(self, step: Step) -> str:
        """One step. What cannot be done just now, such as SQL while PostgreSQL is down, is not done."""
        try:
            told = self._acts[step.what](self._stage.seats[step.worker], step)
        except (psycopg.Error, ProcessLookupError, ControlError) as error:  # it ended just now, or PostgreSQL is away
            told = None
            self.done[f"not done: {type(error).__name__}"] += 1
        if told is None:
            return f"{step.what}: nothing there"
        self.done[step.what.value] += 1
        return f"{step.what}: {told}"

    def heal_everything(self) -> None:
        """End all trouble: every network whole, every process going on, every worker started, every kind resumed."""
        for seat in self._stage.seats:
            seat.proxy.heal()
            self._continue(seat)
            self._start(seat)
        with suppress(psycopg.Error):
            self.resume_all(probe=False)

    def resume_all(self, *, probe: bool) -> str | None:
        db = self._stage.db
        paused = db.execute("SELECT kind FROM background_kinds WHERE paused_at IS NOT NULL ORDER BY kind").fetchall()
        for (kind,) in paused:
            with suppress(ControlError):  # its probe opened it meanwhile
                resume(db, kind, actor=ACTOR, probe=probe)
        return ", ".join(kind for (kind,) in paused) or None

    def _enqueue(self, _: Seat, step: Step) -> str:
        with psycopg.connect(self._stage.url, connect_timeout=5) as connection:
            ids = [_put(connection, job) for job in step.jobs]
        self.enqueued |= {job for job in ids if job is not None}
        return f"{len(ids)} jobs"

    def _enqueue_and_roll_back(self, _: Seat, step: Step) -> str:
        mark = f"rolled back at {step.at}"
        self.rolled_back.add(mark)
        with psycopg.connect(self._stage.url, connect_timeout=5) as connection:
            for job in step.jobs:
                task = TASKS[job.kind]
                enqueue(connection, task, job.ordeal.model_copy(update={"mark": mark}))
            connection.rollback()
        return f"{len(step.jobs)} jobs"

    def _kill_child(self, seat: Seat, step: Step) -> str | None:
        if (found := self._some_child(seat, step)) is None:
            return None
        seat, pid, job = found
        os.kill(pid, signal.SIGKILL)
        if time.time() > seat.troubled_until:
            self.kills.append(Kill(job, time.time()))
        return f"{pid} of job {job}"

    def _stop_child(self, seat: Seat, step: Step) -> str | None:
        if (found := self._some_child(seat, step)) is None:
            return None
        _, pid, job = found
        os.kill(pid, signal.SIGSTOP)
        return f"{pid} of job {job}"

    def _some_child(self, seat: Seat, step: Step) -> tuple[Seat, int, int] | None:
        """A child of this worker, or of the next one that has any."""
        seats = self._stage.seats
        for place in (*seats[seat.number :], *seats[: seat.number]):
            if children := self._stage.children(place):
                pid = sorted(children)[int(step.pick * len(children))]
                return place, pid, children[pid]
        return None

    def _signal_template(self, seat: Seat, number: signal.Signals) -> str | None:
        if seat.template is None or "template" not in _title(seat.template):
            return None
        seat.troubled_until = max(seat.troubled_until, time.time() + RECOVERY_SECONDS)
        self._stage.hinder(seat, TROUBLE_SECONDS)
        os.kill(seat.template, number)
        return f"{seat.template}"

    def _signal(self, seat: Seat, number: signal.Signals) -> str | None:
        if seat.process is None or seat.process.process.poll() is not None:
            return None
        seat.troubled_until = float("inf")
        self._stage.send(seat, number)
        return f"{seat.process.pid}"

    def _deploy(self, seat: Seat, step: Step) -> str | None:
        told = self._signal(seat, signal.SIGTERM)
        if told is not None and step.value < 0.3:
            time.sleep(0.05)
            self._stage.send(seat, signal.SIGTERM)
            return f"{told}, twice"
        return told

    def _start(self, seat: Seat) -> str | None:
        self._stage.collect(seat)
        seat.troubled_until = time.time() + RECOVERY_SECONDS
        seat.start_owed = seat.process is not None and seat.asked_to_end
        if seat.process is not None:
            return None
        self._stage.start(seat)
        return f"worker {seat.number}"

    def tend(self, seat: Seat) -> None:
        """Note an end, and start again what ended by itself, or only after its start was due."""
        self._stage.collect(seat)
        if seat.process is None and (seat.start_owed or not seat.sent & {signal.SIGKILL, signal.SIGTERM}):
            self._start(seat)

    def _continue(self, seat: Seat) -> str:
        for pid in [*self._stage.children(seat), *([seat.template] if seat.template else [])]:
            with suppress(ProcessLookupError):
                if _title(pid).startswith("oomph:"):
                    os.kill(pid, signal.SIGCONT)
        self._stage.send(seat, signal.SIGCONT)
        seat.troubled_until = time.time() + RECOVERY_SECONDS
        return f"worker {seat.number}"

    def _network(self, seat: Seat, change: Callable[[], None]) -> str:
        change()
        seat.troubled_until = time.time() + (RECOVERY_SECONDS if change == seat.proxy.heal else 60)
        if change != seat.proxy.heal:
            self._stage.hinder(seat, TROUBLE_SECONDS)
        return f"worker {seat.number}"

    def _terminate_sessions(self, _: Seat, step: Step) -> str:
        pids = [row[0] for row in self._stage.db.execute(SESSIONS).fetchall()]
        chosen = [pid for pid in pids if random.Random(f"{step.pick} {pid}").random() < step.value]
        self._stage.db.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS of (pid)", [chosen])
        self._trouble_all(2)
        return f"{len(chosen)} of {len(pids)}"

    def _kill_backend(self, _: Seat, step: Step) -> str | None:
        pids = [row[0] for row in self._stage.db.execute(SESSIONS).fetchall()]
        if not pids:
            return None
        os.kill(pids[int(step.pick * len(pids))], signal.SIGKILL)
        self._trouble_all(RECOVERY_SECONDS)
        return "all sessions end, and PostgreSQL recovers"

    def _restart(self, how: signal.Signals) -> str:
        self._trouble_all(60)
        since = time.monotonic()
        self._stage.restart_postgresql(how)
        for seat in self._stage.seats:
            if seat.troubled_until < float("inf"):
                seat.troubled_until = time.time() + RECOVERY_SECONDS
        return f"away for {time.monotonic() - since:.1f} s"

    def _trouble_all(self, seconds: float) -> None:
        for seat in self._stage.seats:
            seat.troubled_until = max(seat.troubled_until, time.time() + seconds)
            self._stage.hinder(seat, min(seconds, TROUBLE_SECONDS))

    def _cancel(self, _: Seat, step: Step) -> str | None:
        job = self._some_job("status IN ('queued', 'running') AND schedule IS NULL", step)
        return None if job is None else f"job {job}, {cancel(self._stage.db, job, actor=ACTOR)}"

    def _retry(self, _: Seat, step: Step) -> str | None:
        job = self._some_job("status IN ('dead', 'cancelled') AND schedule IS NULL", step)
        if job is None:
            return None
        retry(self._stage.db, job, actor=ACTOR)
        return f"job {job}"

    def _some_job(self, condition: str, step: Step) -> int | None:
        rows: list[tuple[Any, ...]] = self._stage.db.execute(
            f"SELECT id FROM background_jobs WHERE {condition} ORDER BY id DESC LIMIT 50"  # type: ignore[arg-type]
        ).fetchall()
        return rows[int(step.pick * len(rows))][0] if rows else None

    def _pause(self, _: Seat, step: Step) -> str:
        kind = list(TASKS)[int(step.pick * len(TASKS))]
        pause(self._stage.db, kind, actor=ACTOR, reason="chaos")
        return kind


def _put(connection: "psycopg.Connection[Any]", job: NewJob) -> int | None:
    found: int | None = enqueue(
        connection,
        TASKS[job.kind],
        job.ordeal,
        priority=Priority(job.priority),
        run_after=timedelta(seconds=job.delay),
        concurrency_key=job.concurrency_key,
        dedupe_key=job.dedupe_key,
        dedupe_active=job.dedupe_active,
    )
    return found


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""
