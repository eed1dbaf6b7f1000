"""The server's process: found by the file it keeps in its data folder, started and stopped."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.embedded.account import ENVIRONMENT, Account
from supervisor.embedded.errors import EmbeddedServerError

FAST_SECONDS = 30.0  # a fast shutdown ends all sessions and writes one checkpoint
IMMEDIATE_SECONDS = 10.0  # then it is told to end without one, and recovers at the next start

# A program of its own, as a process with threads may run almost nothing between fork and exec. The parent-death signal
# comes last, since a change of user clears it; SIGINT asks PostgreSQL for a fast shutdown. A durable server is forked
# once more, so that it is no child of the supervisor, whose children are jobs.
LAUNCHER = """
import ctypes, os, sys
uid, gid, owner, *command = sys.argv[1:]
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(*[int(gid)] * 3); os.setresuid(*[int(uid)] * 3)
if owner == "nobody":
    if os.fork(): os._exit(0)
elif ctypes.CDLL(None).prctl(1, 2, 0, 0, 0) or os.getppid() != int(owner):
    sys.exit("the process that asked for this server has ended")
os.write(1, b"%d" % os.getpid())
os.dup2(2, 1)
os.execv(command[0], command)
"""


@dataclass(frozen=True)
class Postmaster:
    pid: int
    sockets: Path | None = None
    ready: bool = False

    @classmethod
    def of(cls, data: Path) -> "Postmaster | None":
        """The running server of `data`; a stale file, or its number in another process's hands, is none."""
        try:
            lines = (data / "postmaster.pid").read_text().splitlines()
            command = Path(f"/proc/{int(lines[0])}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, IndexError, ValueError):
            return None
        if os.fsencode(data) not in command:
            return None
        if len(lines) < 8:  # still starting
            return cls(int(lines[0]))
        return cls(int(lines[0]), Path(lines[4]), ready=lines[7].strip() == "ready")

    def wait_for_end(self, seconds: float) -> bool:
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            return bool(poll.poll(seconds * 1000))
        finally:
            os.close(descriptor)

    def stop(self) -> None:
        for request, seconds in ((signal.SIGINT, FAST_SECONDS), (signal.SIGQUIT, IMMEDIATE_SECONDS)):
            try:
                os.kill(self.pid, request)
            except ProcessLookupError:
                return
            if self.wait_for_end(seconds):
                return
        raise EmbeddedServerError(
            f"PostgreSQL, process {self.pid}, has not ended {FAST_SECONDS:.0f} s after SIGINT "
            f"and {IMMEDIATE_SECONDS:.0f} s after SIGQUIT"
        )


def forget_the_dead(data: Path, sockets: Path) -> None:
    """Remove lock files that a killed server left, where PostgreSQL itself would not dare to.

    It takes a file's process number for a live server if any process of the same user bears it by now, as happens at
    every restart of a container. Only for a folder that has no server and where nobody else may start one.
    """
    (sockets / ".s.PGSQL.5432.lock").unlink(missing_ok=True)
    file = data / "postmaster.pid"
    number = file.read_text().partition("\n")[0] if file.exists() else ""
    # For a number that is free, the file stays: it names the shared memory by which PostgreSQL finds orphaned sessions.
    if number and Path("/proc", number).exists():
        file.unlink()


def launch(
    account: Account, programs: Path, data: Path, settings: Mapping[str, str], log: Path, *, outlives_us: bool
) -> tuple[Postmaster, subprocess.Popen[bytes]]:
    """Start a server, not yet ready for connections; also returns the process that must be waited for."""
    command = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(account.uid), str(account.gid)]
    command += ["nobody" if outlives_us else str(os.getpid())]
    command += [str(programs / "postgres"), "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())]
    with log.open("ab") as errors:
        os.fchown(errors.fileno(), account.uid, account.gid)
        process = subprocess.Popen(
            command,
            cwd="/",
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C reaches the worker, which needs its database until it has shut down
        )
    assert process.stdout is not None
    with process.stdout:
        number = process.stdout.read()
    if outlives_us:
        process.wait()
    if not number:
        process.wait()
        raise EmbeddedServerError(f"PostgreSQL could not be launched; the end of {log} says why: {tail(log)}")
    return Postmaster(int(number)), process


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1000:].strip()
