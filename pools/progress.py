"""A child's side of progress: few frames, the newest one wins, the last one is never lost."""

import math
import os
import socket
import threading
import time

from pools.frames import MAX_NOTE_CHARS, Progress, pack

MAX_PER_SECOND = 5  # a person watches these; more would only be work for the supervisor


class ProgressSender:
    """Sends what a handler publishes: at most five at once and five a second, never waiting for the supervisor.

    Where a call comes too soon its value is held back, until a later call may send or the handler has ended.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._allowance = float(MAX_PER_SECOND)
        self._refilled = time.monotonic()
        self._held_back: bytes | None = None

    def publish(self, fraction: float, note: str) -> None:
        """Safe from any thread. In a process that the handler forked it does nothing: that one owns no socket."""
        if os.getpid() != self._owner or math.isnan(fraction):
            return
        frame = pack(Progress(fraction=fraction, note=note[:MAX_NOTE_CHARS].encode(errors="replace").decode()))
        with self._lock:
            now = time.monotonic()
            self._allowance = min(MAX_PER_SECOND, self._allowance + (now - self._refilled) * MAX_PER_SECOND)
            self._refilled = now
            self._held_back = frame
            if self._allowance >= 1:
                self._allowance -= 1
                self._send(socket.MSG_DONTWAIT)

    def finish(self) -> None:
        """Send what was held back; the handler has ended, so this may wait."""
        with self._lock:
            if self._held_back is not None:
                self._send(0)

    def _send(self, flags: int) -> None:
        assert self._held_back is not None
        try:
            sent = self._connection.send(self._held_back, flags)
        except BlockingIOError:
            return
        # The kernel queues so small a piece whole or not at all; half a frame would spoil all that follow.
        assert sent == len(self._held_back)
        self._held_back = None
