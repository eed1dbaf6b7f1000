"""Worker processes for tests: started as an operator starts them, watched through their log."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.waiting import wait_for

ROOT = Path(__file__).parent.parent
FAST = {
    "WORKER_LEASE_SECONDS": "3",
    "WORKER_HEARTBEAT_SECONDS": "0.5",
    "WORKER_POLL_SECONDS": "0.5",
    "WORKER_RETRY_DELAY_SECONDS": "0.05",
    "WORKER_SHUTDOWN_SECONDS": "10",
    "WORKER_INGEST_CONCURRENCY": "2",
    "WORKER_INGEST_MEMORY_MB": "256",
    "WORKER_AGENT_CONCURRENCY": "10",
    "WORKER_SYSTEM_CONCURRENCY": "5",
}


class WorkerProcess:
    """One `python -m supervisor` with its log in a file."""

    def __init__(self, url: str, app: str, log: Path, settings: Mapping[str, str]) -> None:
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
                [sys.executable, "-m", "supervisor"],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_log(self, pattern: str, seconds: float = 20.0) -> re.Match[str]:
        """Wait until the log matches `pattern`."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.text())
            if found is None and self.process.poll() is not None:
                raise AssertionError(f"the worker ended with {self.process.returncode}:\n{self.text()}")
            return found

        try:
            return wait_for(look, f"log line {pattern!r}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()[-4000:]}") from None

    def wait_ready(self) -> "WorkerProcess":
        self.wait_log(r"ready: worker")
        return self

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 30.0) -> int:
        return self.process.wait(seconds)

    def stop(self) -> int:
        """SIGTERM, and its exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def descendants(self) -> list[psutil.Process]:
        """Its live processes; PID 1 of a container may be slow to reap, so zombies do not count."""
        return [
            child
            for child in psutil.Process(self.pid).children(recursive=True)
            if child.status() != psutil.STATUS_ZOMBIE
        ]

    def child_of(self, job_id: int) -> int:
        """The pid of the process that runs this job, once its title says so."""

        def look() -> list[int]:
            titled = re.compile(rf"job {job_id}\b")
            return [child.pid for child in self.descendants() if titled.search(_title(child))]

        return wait_for(look, f"a process of job {job_id}")[0]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def running_worker(url: str, log: Path, app: str, **settings: str) -> Iterator[WorkerProcess]:
    """A worker that is ready; killed at the end if it still runs."""
    worker = WorkerProcess(url, app, log, settings)
    try:
        yield worker.wait_ready()
    finally:
        if worker.process.poll() is None:
            worker.process.send_signal(signal.SIGCONT)
            worker.process.kill()
        worker.process.wait()
