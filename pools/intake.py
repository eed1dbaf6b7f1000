"""Reads one end of a pipe or socket on the loop: never more than its share, and never waiting for an end of file."""

import asyncio
import os
from collections.abc import Callable

READ_BYTES = 64 << 10  # the size of a pipe
# A flood beyond this waits in its pipe, and so does the job that writes it: the loop has others to serve.
MAX_BYTES_PER_SECOND = 8 << 20
MAX_DRAIN_BYTES = 4 << 20  # after the end: more than a whole frame; a helper that writes on for ever cannot hold us up


class Intake:
    """Passes what arrives on `descriptor` to `take`. Owns the descriptor."""

    def __init__(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._take = take
        self._window_started = self._loop.time()
        self._window_bytes = 0
        self._pause: asyncio.TimerHandle | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._readable)

    def drain(self) -> None:
        """Take all that has arrived, up to a bound, without waiting. What a dead process wrote has arrived."""
        left = MAX_DRAIN_BYTES
        while left > 0 and (taken := self._read()):
            left -= taken

    def close(self) -> None:
        """Stop reading and close the descriptor. Safe to call twice."""
        if self._descriptor < 0:
            return
        self._stop_reading()
        os.close(self._descriptor)
        self._descriptor = -1

    def _readable(self) -> None:
        now = self._loop.time()
        if now - self._window_started >= 1:
            self._window_started, self._window_bytes = now, 0
        taken = self._read()
        if taken == 0:
            self._stop_reading()  # at its end a descriptor stays readable for ever
            return
        self._window_bytes += taken or 0
        if self._window_bytes >= MAX_BYTES_PER_SECOND:
            self._loop.remove_reader(self._descriptor)
            self._pause = self._loop.call_at(self._window_started + 1, self._resume)

    def _read(self) -> int | None:
        """How many bytes were taken: 0 at the end, None where nothing has arrived."""
        if self._descriptor < 0:
            return 0
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:  # a socket whose other end vanished with unread bytes
            return 0
        if data:
            self._take(data)
        return len(data)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._descriptor, self._readable)

    def _stop_reading(self) -> None:
        self._loop.remove_reader(self._descriptor)
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
