"""Where a chaos run takes place: PostgreSQL, one worker process behind a proxy each, and the one who watches them."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import psycopg

from jobs.migrate import migrate
from supervisor.embedded import EmbeddedServer
from supervisor.embedded.postmaster import Postmaster
from supervisor.testing.processes import WorkerProcess
from tests.chaos.app import JOB, URL
from tests.chaos.history import Exit, Halt
from tests.chaos.processes import TITLE, Processes, children_of
from tests.proxy import Proxy

SERVER = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "track_commit_timestamp": "on",  # when a change became visible: what the checker compares
    "max_connections": "300",
}
SLOTS = {"agent": 6, "system": 3, "ingest": 3}
WORKER = {
    "WORKER_LEASE_SECONDS": "6",
    "WORKER_HEARTBEAT_SECONDS": "1",
    "WORKER_CALL_TIMEOUT_SECONDS": "3",
    "WORKER_SHUTDOWN_SECONDS": "2",
    "WORKER_INGEST_MEMORY_MB": "160",
    **{f"WORKER_{pool.upper()}_CONCURRENCY": str(slots) for pool, slots in SLOTS.items()},
}
LOOK_SECONDS = 0.25
RUN = "CHAOS_RUN"
_PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Seat:
    """The place of one worker: its proxy stays, its process comes and goes."""

    number: int
    proxy: Proxy
    process: WorkerProcess | None = None
    asked_to_end: bool = False
    sent: frozenset[int] = frozenset()  # the signals that its process was sent
    start_owed: bool = False  # its start was due while it was still ending
    starts: int = 0
    troubled_until: float = 0.0  # its network or itself was tampered with: its reactions are no measure
    hindered_until: float = 0.0  # its way to the database is broken, or its template stands still
    template: int | None = None


class Stage:
    """Entered, it is set up; left, nothing of it remains."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        self.run = folder.name
        self.server = EmbeddedServer(folder / "postgresql", durable=False, settings=SERVER)
        self.url = ""
        self.seats: list[Seat] = []
        self.halts: list[Halt] = []
        self.exits: list[Exit] = []
        self.troubles: list[Halt] = []
        self.processes = Processes()
        self._count = workers
        self._stack = ExitStack()
        self._db: psycopg.Connection[Any] | None = None
        self._leaving = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watcher", daemon=True)

    def __enter__(self) -> Self:
        # PID 1 of a container may reap nothing; so what a killed supervisor leaves becomes ours, and is reaped here.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        with self._stack:
            self.url = self.server.start()
            self._stack.callback(self.server.stop)
            migrate(self.url)
            self.db.execute((Path(__file__).parent / "history.sql").read_text())
            self._stack.callback(self._end_workers)
            for number in range(self._count):
                self.seats.append(Seat(number, self._stack.enter_context(Proxy(self.url))))
                self.start(self.seats[-1])
            self._watcher.start()
            for seat in self.seats:
                assert seat.process is not None
                seat.process.wait_ready()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        self._watcher.join()
        if self._db is not None:
            self._db.close()
        self._stack.close()

    @property
    def db(self) -> psycopg.Connection[Any]:
        """A connection past the proxies. Raises `psycopg.OperationalError` while PostgreSQL is down."""
        if self._db is None or self._db.closed:
            self._db = psycopg.connect(self.url, autocommit=True, connect_timeout=5)
        return self._db

    def start(self, seat: Seat) -> None:
        """Start a worker process where none runs."""
        if seat.process is not None and seat.process.process.poll() is None:
            return
        seat.starts += 1
        seat.asked_to_end, seat.sent = False, frozenset()
        log = self.folder / f"worker-{seat.number}-{seat.starts}.log"
        names = {**WORKER, URL: self.url, RUN: self.run}
        seat.process = WorkerProcess(seat.proxy.url, "tests.chaos.app:app", log, names)
        self.hinder(seat, seat.hindered_until - time.time())

    def hinder(self, seat: Seat, seconds: float) -> None:
        """Remember that for some seconds this worker's way to the database is broken, or its births are held up."""
        now = time.time()
        seat.hindered_until = max(seat.hindered_until, now + seconds)
        if seat.process is not None and seat.hindered_until > now:
            self.troubles.append(Halt(seat.process.pid, now, seat.hindered_until))

    def send(self, seat: Seat, number: signal.Signals) -> None:
        """Send a signal to a supervisor, and remember what it means for what may be expected of it."""
        process = seat.process
        if process is None or process.process.poll() is not None:
            return
        now = time.time()
        if number == signal.SIGKILL:
            self.halts.append(Halt(process.pid, now, float("inf")))
        elif number == signal.SIGSTOP:
            self.halts.append(Halt(process.pid, now, now + 3600))
        elif number == signal.SIGTERM:
            seat.asked_to_end = True
        seat.sent |= {number}
        process.signal(number)
        if number == signal.SIGCONT:
            for place, halt in enumerate(self.halts):
                if halt.pid == process.pid and now < halt.until < float("inf"):
                    self.halts[place] = replace(halt, until=now)

    def children(self, seat: Seat) -> dict[int, int]:
        """The children of a worker right now: pid -> job."""
        found: dict[int, int] = {}
        for child in children_of(seat.process.pid) if seat.process is not None else []:
            with suppress(psutil.NoSuchProcess):
                if titled := TITLE.match(" ".join(child.cmdline())):
                    found[child.pid] = int(titled[1])
        return found

    def collect(self, seat: Seat) -> None:
        """Note a process that has ended."""
        if seat.process is not None and (status := seat.process.process.poll()) is not None:
            # Before its first line it is an interpreter that starts, and SIGTERM does what it does to those.
            too_early = status == -signal.SIGTERM and not seat.process.text()
            asked = seat.asked_to_end and status != -signal.SIGKILL and not too_early
            started = "ready: worker" in seat.process.text()
            self.exits.append(Exit(seat.process.pid, status, asked, time.time(), seat.sent, started))
            self.halts.append(Halt(seat.process.pid, time.time(), float("inf")))
            seat.process, seat.template = None, None

    def restart_postgresql(self, how: signal.Signals) -> None:
        """End the postmaster (SIGINT: fast; SIGQUIT: as if it crashed) and start another."""
        if how == signal.SIGINT:
            self._wait_until_up()  # PostgreSQL 18 does not end when it is told to while it recovers from a crash
        postmaster = Postmaster.of(self.server.data)
        if postmaster is not None:
            os.kill(postmaster.pid, how)
            postmaster.wait_for_end(10)
        self.server.stop()
        self.url = self.server.start()

    def _wait_until_up(self) -> None:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            time.sleep(0.05)

    def _end_workers(self) -> None:
        for seat in self.seats:
            if seat.process is not None and seat.process.process.poll() is None:
                seat.process.signal(signal.SIGCONT)
                seat.process.process.kill()
                seat.process.wait()
        for process, _ in self._helpers(psutil.process_iter()):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._reap()

    # What the watcher sees. It runs in a thread of its own, and only it writes `processes`.

    def _watch(self) -> None:
        while not self._leaving.wait(LOOK_SECONDS):
            self._look()
            self._reap()

    def _look(self) -> None:
        for seat in self.seats:
            if (worker := seat.process) is not None:
                seat.template = self.processes.look(worker.pid) or seat.template
        self.processes.look_again()
        for process, whose in self._helpers(psutil.process_iter()):
            with suppress(psutil.NoSuchProcess):
                job, claim = map(int, whose[JOB].split(":"))
                self.processes.see(process, "helper", 0, job, claim)

    def _helpers(self, processes: Iterator[psutil.Process]) -> Iterator[tuple[psutil.Process, dict[str, str]]]:
        for process in processes:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.name() == "sleep" and process.status() != psutil.STATUS_ZOMBIE:
                    names = process.environ()
                    if names.get(RUN) == self.run and JOB in names:
                        yield process, names

    def _reap(self) -> None:
        """Reap what was given to us as an orphan; what we started ourselves has its own waiter."""
        ours = {seat.process.pid for seat in self.seats if seat.process is not None}
        for child in children_of(os.getpid()):
            with suppress(psutil.NoSuchProcess, ChildProcessError):
                title = child.name()
                if child.pid not in ours and child.status() == psutil.STATUS_ZOMBIE and "postgres" not in title:
                    os.waitpid(child.pid, os.WNOHANG)
