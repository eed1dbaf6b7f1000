"""Worker processes for tests: started as an operator starts them, watched through their log."""

import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from pools.leftovers import stats, sweep_processes
from supervisor.testing.waiting import wait_for

# A test should not wait for what is meant to give a busy host time.
FAST = {
    "WORKER_LEASE_SECONDS": "5",
    "WORKER_HEARTBEAT_SECONDS": "0.5",
    "WORKER_POLL_SECONDS": "0.5",
    "WORKER_RETRY_DELAY_SECONDS": "0.05",
    "WORKER_SHUTDOWN_SECONDS": "10",
    "WORKER_INGEST_CONCURRENCY": "2",
    "WORKER_INGEST_MEMORY_MB": "256",
    "WORKER_AGENT_CONCURRENCY": "10",
    "WORKER_SYSTEM_CONCURRENCY": "5",
}
LOG_SHOWN_CHARS = 4_000
END_SECONDS = 3.0  # a worker that still answers ends well within it; one that a test has frozen or cut off may not
ASK_SECONDS = 0.1  # signals that are pending together count as one


class WorkerProcess:
    """One `python -m supervisor` in the current folder, with its log in a file.

    `through` is a command that becomes it, such as `nsenter --net=...`.
    """

    def __init__(self, url: str, app: str, log: Path, settings: Mapping[str, str], through: Sequence[str] = ()) -> None:
        self.log = log
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WORKER_")},
            "DATABASE_URL": url,
            "WORKER_APP": app,
            **FAST,
            **settings,
        }
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                [*through, sys.executable, "-m", "supervisor"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        """What it has logged so far."""
        return self.log.read_text(errors="replace")

    def wait_log(self, pattern: str, seconds: float = 20.0) -> re.Match[str]:
        """Wait until the log matches `pattern`. Raises `AssertionError` with the log's end, at once if it ended."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.text())
            if found is None and self.process.poll() is not None:
                raise AssertionError(f"the worker ended with {self.process.returncode}")
            return found

        try:
            return wait_for(look, f"log line {pattern!r}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()[-LOG_SHOWN_CHARS:]}") from None

    def wait_ready(self) -> "WorkerProcess":
        """Wait until it claims jobs."""
        self.wait_log(r"ready: worker")
        return self

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 45.0) -> int:
        """Its exit status."""
        return self.process.wait(seconds)

    def stop(self) -> int:
        """SIGTERM, and its exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def end(self) -> None:
        """End it soon, whatever it does: SIGTERM until it gives its jobs back, then SIGKILL; and what is left of it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
        until = time.monotonic() + END_SECONDS
        while self.process.poll() is None and time.monotonic() < until:
            self.process.send_signal(signal.SIGTERM)  # the first one lets jobs finish, another does not wait for them
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(ASK_SECONDS)
        self.process.kill()
        self.process.wait()
        if sys.platform == "linux" and (survivors := sweep_processes(self.pid).survivors):
            warnings.warn(f"processes {survivors} of a worker that has ended survive even SIGKILL", stacklevel=2)

    def obituary(self) -> str:
        """How it ended, with the end of its log."""
        status = self.process.returncode
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return f"worker {self.pid} ended with {how}; the end of its log:\n{self.text()[-LOG_SHOWN_CHARS:]}"

    def descendants(self) -> list[psutil.Process]:
        """Its live processes. Zombies do not count: PID 1 of a container may be slow to reap."""
        found = psutil.Process(self.pid).children(recursive=True)
        return [process for process in found if is_alive(process.pid)]

    def child_of(self, job_id: int) -> int | None:
        """The pid of the process that runs this job, if its title says so by now."""
        titled = re.compile(rf"\bjob {job_id}\b")
        return next((process.pid for process in self.descendants() if titled.search(_title(process))), None)

    def wait_child(self, job_id: int) -> int:
        """Wait for the process that runs this job; its pid."""
        return wait_for(lambda: self.child_of(job_id), f"a process of job {job_id}")


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def is_alive(pid: int) -> bool:
    """Whether a process runs, if only with one of its threads; a zombie does not."""
    return any(not stat.is_dead for stat in stats([pid]))


@contextmanager
def running_worker(url: str, log: Path, app: str, **settings: str) -> Iterator[WorkerProcess]:
    """A worker that is ready; ended at the end, with what it has left. `settings` are environment variables."""
    worker = WorkerProcess(url, app, log, settings)
    try:
        yield worker.wait_ready()
    finally:
        worker.end()
