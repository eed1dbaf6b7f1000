"""Single keys from a terminal, without waiting for a line's end; the terminal is as it was afterwards."""

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_ESCAPED = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down", b"\x1b[5~": "page up"}
_ESCAPED |= {b"\x1b[6~": "page down"}
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
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)  # Ctrl-C stays a signal
        yield lambda seconds: _key(descriptor, seconds)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _wait(seconds: float) -> None:
    select.select([], [], [], seconds)


def _key(descriptor: int, seconds: float) -> str | None:
    if not select.select([descriptor], [], [], seconds)[0]:
        return None
    pressed = os.read(descriptor, MAX_BYTES)
    if not pressed:
        return "q"
    return _ESCAPED.get(pressed) or pressed[:1].decode("ascii", "replace")
