"""Single keys from a terminal, without waiting for a line's end; the terminal is as it was afterwards."""

import os
import re
import select
import sys
import termios
import tty
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_ONE_KEY = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_ESCAPED = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down"}
_ESCAPED |= {b"\x1b[5~": "page up", b"\x1b[6~": "page down"}
MAX_BYTES = 64  # of keys pressed in one turn; the rest waits for the next


@contextmanager
def pressed_keys() -> Iterator[Callable[[float], str | None]]:
    """Yields a function that waits so many seconds for a key, and names it: `q`, `up`, `page down`; None without one.

    A terminal that has gone is the key `q`. Without a terminal to read from it only waits.
    """
    descriptor = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    if descriptor is None:
        yield _wait
        return
    waiting: deque[str] = deque()
    before = termios.tcgetattr(descriptor)

    def key(seconds: float) -> str | None:
        if not waiting and select.select([descriptor], [], [], seconds)[0]:
            waiting.extend(keys(os.read(descriptor, MAX_BYTES)))
        return waiting.popleft() if waiting else None

    try:
        tty.setcbreak(descriptor)  # Ctrl-C stays a signal
        yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def keys(pressed: bytes) -> list[str]:
    """The names of the keys that a terminal has sent, of which several may come at once."""
    found = _ONE_KEY.findall(pressed)
    return [_ESCAPED.get(each, each.decode("ascii", "replace")) for each in found] or ["q"]


def _wait(seconds: float) -> None:
    select.select([], [], [], seconds)
