"""One process that the bench has started, with what it started itself: its log, its use, its end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20
END_SECONDS = 10.0  # for a worker to end by itself after SIGTERM; it has nothing left to do then
LOOK_SECONDS = 0.002  # how finely the end of a drain is seen
LOG_SHOWN_CHARS = 2_000


class Stuck(Exception):
    """Something did not come in time."""


def wait_for(look: Callable[[], object], what: str, seconds: float, every: float = LOOK_SECONDS) -> None:
    """Call `look` until it answers something true. Raises `Stuck`, naming `what`, after `seconds`."""
    until = time.monotonic() + seconds
    while not look():
        if time.monotonic() > until:
            raise Stuck(f"not within {seconds:g} s: {what}")
        time.sleep(every)


def tree_of(pid: int) -> list[psutil.Process]:
    """A process and its descendants, those that live."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def exact_cpu_seconds(pid: int) -> float:
    """CPU time of the threads that live, in nanoseconds' resolution; 0 for a process that has gone."""
    total = 0
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


@dataclass(frozen=True, slots=True)
class Command:
    """How a worker is started: the arguments after `python`, or a whole command line where `program` is given."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    program: str = sys.executable


class Running:
    """A started process. Use it as a context manager: left, neither it nor its children run any more."""

    def __init__(self, command: Command, log: Path) -> None:
        self.log = log
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("WORKER_")}
        self.started_at = time.monotonic()
        with log.open("wb") as sink:
            self._process = subprocess.Popen(
                [command.program, *command.arguments],
                env={**inherited, **command.environment},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,  # Ctrl-C ends the bench, and the bench ends them in its own order
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def require_alive(self) -> bool:
        """True. Raises `Stuck` with the end of its log where it has ended."""
        if (status := self._process.poll()) is not None:
            end = self.log.read_text(errors="replace")[-LOG_SHOWN_CHARS:]
            raise Stuck(f"the worker ended with {status}; the end of its log:\n{end}")
        return True

    def wait_log(self, text: str, seconds: float) -> None:
        """Wait until its log holds `text`. Raises `Stuck`."""
        wait_for(
            lambda: self.require_alive() and text in self.log.read_text(errors="replace"),
            f"{text!r} in the log",
            seconds,
            0.01,
        )

    def tree(self) -> list[psutil.Process]:
        """It and its descendants that live."""
        return tree_of(self.pid)

    def cpu_seconds(self, *, whole_tree: bool = True) -> float:
        """CPU time so far, children that were waited for included."""
        total = 0.0
        for process in self.tree() if whole_tree else self.tree()[:1]:
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
                if whole_tree:
                    total += times.children_user + times.children_system
        return total

    def exact_cpu_seconds(self, *, whole_tree: bool = True) -> float:
        """CPU time so far of the threads that live: for processes that hardly run."""
        processes = self.tree() if whole_tree else self.tree()[:1]
        return sum(exact_cpu_seconds(process.pid) for process in processes)

    def pss_mb(self) -> dict[str, float]:
        """MiB by process: its own memory, and its share of what it shares."""
        found = {}
        for process in self.tree():
            with suppress(psutil.Error):
                name = " ".join(process.cmdline())[:60] or process.name()
                found[f"{process.pid} {name}"] = round(process.memory_full_info().pss / MIB, 2)
        return found

    def stop(self) -> None:
        """SIGTERM; after `END_SECONDS`, or for children that stay, SIGKILL."""
        tree = self.tree()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        for process in tree:  # psutil compares start times: a pid that is used again gets nothing
            with suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    process.kill()
        self._process.wait(END_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
