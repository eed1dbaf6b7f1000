"""`oomph worker --reload`, for development: a worker that is started anew when a file of its app changes.

    change       every changed file can be compiled? no: say where; the worker of before goes on
                 yes: SIGTERM, the ordinary drain, a new worker
    worker ends  status 0: so does this. Otherwise, as with an app that does not load, the next change starts another

This process imports nothing of the app, so no edit can break it. Ctrl-C ends both; a second one does not wait for jobs.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from jobs.extras import how_to_install
from supervisor.errors import CommandError
from supervisor.settings import load_settings
from supervisor.shutdown import grace_seconds

LOOK_MS = 200  # between two looks at the worker; a change is seen at once
SETTLE_MS = 100  # of quiet after a change: an editor, or a change of branch, writes more than one file
TOGETHER_MS = 1_600  # at most, of changes that go on

log = logging.getLogger("oomph.reload")


def serve_reloading(arguments: Sequence[str]) -> int:
    """Run `oomph worker` with `arguments` until told to stop; returns the exit status of the last one.

    Watches the working folder. Raises `CommandError` without the library for that, and `SettingsError`.
    """
    try:
        from watchfiles import PythonFilter, watch
    except ImportError as error:
        raise CommandError(f"--reload needs a library that is not installed: {how_to_install('reload')}") from error
    worker = _Worker(arguments, grace=grace_seconds(load_settings().worker_shutdown_seconds))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: worker.end_soon())
    for changes in watch(
        Path.cwd(),
        watch_filter=PythonFilter(),
        stop_event=worker.told_to_end,
        step=SETTLE_MS,
        debounce=TOGETHER_MS,
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    ):
        # The first worker starts here too: from now on no change is missed.
        if not worker.was_started or (changes and _can_be_compiled(path for _, path in changes)):
            worker.start_anew()
        elif worker.has_ended_well():
            break
    return worker.end()


class _Worker:
    """The worker process of the moment; `grace` is how many seconds it has for its end."""

    def __init__(self, arguments: Sequence[str], grace: float) -> None:
        self.told_to_end = threading.Event()
        self._command = [sys.executable, "-m", "supervisor", *arguments]
        self._grace = grace
        self._process: subprocess.Popen[bytes] | None = None
        self._failure_told = False

    @property
    def was_started(self) -> bool:
        return self._process is not None

    def start_anew(self) -> None:
        """End the one of before, if any, and start another, unless told to end meanwhile."""
        if self.was_started:
            log.info("a file has changed: the worker ends what it runs, and starts anew")
            self.end()
        if not self.told_to_end.is_set():
            self._failure_told = False
            # A group of its own: Ctrl-C of the terminal is for this process, which passes on one SIGTERM.
            self._process = subprocess.Popen(
                self._command,
                process_group=0,
                preexec_fn=_die_with_this_process() if sys.platform == "linux" else None,  # noqa: PLW1509
            )

    def end(self) -> int:
        """Let it drain, for its grace at most; returns its exit status."""
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(self._grace)
            except subprocess.TimeoutExpired:
                log.error("the worker did not end within %g s and is killed", self._grace)
                process.kill()
        return process.wait()

    def end_soon(self) -> None:
        """For a signal handler: end, and at the second time do not wait for jobs."""
        if self.told_to_end.is_set() and self._process is not None:
            self._process.send_signal(signal.SIGTERM)
        self.told_to_end.set()

    def has_ended_well(self) -> bool:
        """Whether it has ended by itself with nothing left to do; a failure is told once."""
        status = None if self._process is None else self._process.poll()
        if status and not self._failure_told:
            self._failure_told = True
            log.error("the worker has ended with status %d: the next change starts another", status)
        return status == 0


def _can_be_compiled(paths: Iterable[str]) -> bool:
    """Whether every file that still exists is Python; says where one is not."""
    for path in sorted(paths):
        try:
            compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
        except FileNotFoundError:
            continue
        except (SyntaxError, ValueError, OSError) as error:
            line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            log.error("%s%s: %s; the next change is waited for", path, line, error)
            return False
    return True


def _die_with_this_process() -> Callable[[], None]:
    """What a child does before it becomes the worker: however this process ends, no worker goes on behind its back."""
    from pools.process import die_with_parent  # Linux only

    parent = os.getpid()
    return lambda: die_with_parent(parent)
