"""A real terminal for a command: a pty of any size, what is on it, and keys."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

COMMAND = [sys.executable, "-c", "from supervisor.commands import main; main()"]
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7])m")
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>])")
FRAME = "\x1b[H"


class Terminal:
    """One `oomph` command on a terminal of its own."""

    def __init__(self, *arguments: str, columns: int, lines: int, environment: dict[str, str]) -> None:
        self._screen, self.slave = pty.openpty()
        self.resize(columns, lines)
        self.settings = termios.tcgetattr(self.slave)
        unset = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "WORKER_", "DATABASE_URL", "PG")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
        self.raw = ""
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={**inherited, "TERM": "xterm-256color", **environment},
            preexec_fn=self._control,
        )

    def _control(self) -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.slave if hasattr(self, "process") else self._screen, termios.TIOCSWINSZ, _size(lines, columns))

    def press(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def read(self, seconds: float) -> None:
        """Take what comes within this time at most."""
        if select.select([self._screen], [], [], seconds)[0]:
            self.raw += os.read(self._screen, 1 << 16).decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def text(self) -> str:
        """All that was written, without what only steers a terminal."""
        return _ESCAPES.sub("", self.raw)

    @property
    def frame(self) -> list[str]:
        """The lines of the last screen that was drawn whole."""
        whole = self.raw.split(FRAME)[:-1]
        return [line.rstrip() for line in _ESCAPES.sub("", whole[-1]).split("\n")] if whole else []

    def wait_frame(self, pattern: str, seconds: float = 20.0) -> list[str]:
        """Wait for a screen with such a line."""
        until = time.monotonic() + seconds
        while not any(re.search(pattern, line) for line in self.frame):
            assert time.monotonic() < until, f"no screen with {pattern!r}; the last: {self.frame}\n{self.raw[-2000:]!r}"
            assert self.process.poll() is None, self.text
            self.read(0.1)
        return self.frame

    def end(self, seconds: float = 20.0) -> int:
        """Wait for the end; the exit status."""
        until = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < until, f"it does not end: {self.text[-2000:]}"
            self.read(0.05)
        while select.select([self._screen], [], [], 0)[0]:
            self.read(0)
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)
        os.close(self.slave)


@contextmanager
def terminal(*arguments: str, columns: int = 100, lines: int = 24, **environment: str) -> Iterator[Terminal]:
    """`oomph` with these arguments on a terminal of this size."""
    opened = Terminal(*arguments, columns=columns, lines=lines, environment=environment)
    try:
        yield opened
    finally:
        opened.close()


def _size(lines: int, columns: int) -> Any:
    return struct.pack("HHHH", lines, columns, 0, 0)
