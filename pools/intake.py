"""Reads one end of a pipe or socket on the loop: never more than its share, and never waiting for an end of file."""

import asyncio
import math
import os
from collections.abc import Callable
from dataclasses import dataclass

MAX_DRAIN_FRAMES = 5_000  # more than a socket's buffer holds
MAX_DRAIN_BYTES = 4 << 20  # after the end: more than a whole frame; a helper that writes on for ever cannot hold us up


@dataclass(frozen=True, slots=True)
class Share:
    """What one descriptor may cost the loop, which has others to serve.

    A flood beyond this waits in its pipe, and so does the job that writes it.
    """

    read_bytes: int  # at once
    bytes_per_second: int
    frames_per_second: float = math.inf


OUTPUT = Share(64 << 10, 8 << 20)  # a pipe at once
# Frames cost by their number: 8 MiB of tiny ones would take a core. An honest child sends some ten a second, and one
# whole result at its end.
FRAMES = Share(8 << 10, 4 << 20, 500)


class Intake:
    """Passes what arrives on `descriptor` to `take`. Owns the descriptor.

    Where frames arrive, `take` returns how many they were.
    """

    def __init__(self, descriptor: int, take: Callable[[bytes], int | None], share: Share = OUTPUT) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._take = take
        self._share = share
        self._window_started = self._loop.time()
        self._window_bytes = 0
        self._window_frames = 0
        self._pause: asyncio.TimerHandle | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._readable)

    def drain(self) -> None:
        """Take all that has arrived, up to a bound, without waiting. What a dead process wrote has arrived."""
        left = MAX_DRAIN_BYTES
        self._window_frames = 0
        while left > 0 and self._window_frames < MAX_DRAIN_FRAMES and (taken := self._read()):
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
            self._window_started, self._window_bytes, self._window_frames = now, 0, 0
        taken = self._read()
        if taken == 0:
            self._stop_reading()  # at its end a descriptor stays readable for ever
            return
        self._window_bytes += taken or 0
        share = self._share
        if self._window_bytes >= share.bytes_per_second or self._window_frames >= share.frames_per_second:
            self._loop.remove_reader(self._descriptor)
            self._pause = self._loop.call_at(self._window_started + 1, self._resume)

    def _read(self) -> int | None:
        """How many bytes were taken: 0 at the end, None where nothing has arrived."""
        if self._descriptor < 0:
            return 0
        try:
            data = os.read(self._descriptor, self._share.read_bytes)
        except BlockingIOError:
            return None
        except OSError:  # a socket whose other end vanished with unread bytes
            return 0
        if data:
            self._window_frames += self._take(data) or 0
        return len(data)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._descriptor, self._readable)

    def _stop_reading(self) -> None:
        self._loop.remove_reader(self._descriptor)
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
