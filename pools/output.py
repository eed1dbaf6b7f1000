"""What a job prints: forwarded to the log line by line at a bounded rate, with its last 64 KiB kept as evidence."""

import asyncio
import logging
import re
import time

from jobs.outcome import MAX_FRAMES_CHARS, MAX_OUTPUT_TAIL_BYTES, clip
from jobs.redaction import PLAIN, Redactor
from pools.redacted import RedactedStream

MAX_LINE_BYTES = 4 << 10  # longer lines are split
# What one job may write into the log in a second. The rest is counted, and the count is logged.
MAX_LOGGED_LINES = 500
MAX_LOGGED_BYTES = 64 << 10
MAX_DUMP_BYTES = 256 << 10  # of a stack dump with whatever the job prints in between

_FIRST_STACK = re.compile(rb"(Current thread|Thread) 0x")  # how faulthandler begins
# How a record of the job's own log begins: see `pools.child.warm_up`, whose level shows INFO and above. Whoever prints
# the same gets the same: a line that is more alarming than it should be, but never one that a log leaves out.
_RECORD = re.compile(rb"(INFO|WARNING|ERROR|CRITICAL) [^\s:]{1,100}: ")
_CONTROL = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if chr(code) != "\t"}

log = logging.getLogger("oomph.job")


class Output:
    """Collects the output of one attempt. `label` stands before each line of it in the log.

    What `redactor` knows is taken out before anything is split or cut.
    """

    def __init__(self, label: str, redactor: Redactor = PLAIN, **extra: object) -> None:
        self._label = label
        self._extra = extra
        self._redacting = RedactedStream(redactor) if redactor else None
        self._tail = bytearray()
        self._line = bytearray()
        self._window = 0.0
        self._logged_bytes = 0
        self._logged_lines = 0
        self._dropped = 0
        self._dump: bytearray | None = None
        self._dump_end = b""
        self._dump_done = asyncio.Event()

    def take(self, data: bytes) -> None:
        if self._redacting is not None:
            data = self._redacting.feed(data)
        self._collect(data)

    def _collect(self, data: bytes) -> None:
        self._tail += data
        del self._tail[:-MAX_OUTPUT_TAIL_BYTES]
        if self._dump is not None:
            self._dump += data[: MAX_DUMP_BYTES - len(self._dump)]
            if self._dump_end in self._dump:
                self._dump_done.set()
        if self._has_room():
            self._take_lines(data)
        else:
            # In a flood lines are only counted: to split them would cost the loop more than the job pays to print.
            self._dropped += data.count(b"\n")
            self._line.clear()

    def finish(self) -> None:
        """Log the last, unfinished line and how much was dropped."""
        if self._redacting is not None:
            self._collect(self._redacting.rest())
        if self._line:
            self._log(self._line)
            self._line.clear()
        self._say_dropped()

    @property
    def tail(self) -> str:
        return clip(self._tail.decode("utf-8", "replace"), MAX_OUTPUT_TAIL_BYTES)

    def expect_dump(self, end: bytes) -> None:
        """From now on collect a stack dump that closes with `end`."""
        self._dump, self._dump_end = bytearray(), end
        self._dump_done.clear()

    async def wait_for_dump(self, seconds: float) -> None:
        """Return when the dump is complete, or after `seconds`: native code may never let its last part be written."""
        try:
            await asyncio.wait_for(self._dump_done.wait(), seconds)
        except TimeoutError:
            return

    @property
    def dump(self) -> str:
        """The stacks that arrived, or nothing."""
        data = bytes(self._dump or b"")
        if not (first := _FIRST_STACK.search(data)):
            return ""
        text = data[first.start() :].split(self._dump_end)[0]
        return clip(text.decode("utf-8", "replace"), MAX_FRAMES_CHARS)

    def _has_room(self) -> bool:
        now = time.monotonic()
        if now - self._window >= 1:
            self._say_dropped()
            self._window, self._logged_bytes, self._logged_lines = now, 0, 0
        return self._logged_bytes < MAX_LOGGED_BYTES and self._logged_lines < MAX_LOGGED_LINES

    def _take_lines(self, data: bytes) -> None:
        *lines, rest = (self._line + data).split(b"\n")
        for line in lines:
            self._log(line)
        if len(rest) > MAX_LINE_BYTES:
            self._log(rest)
            rest.clear()
        self._line = rest

    def _log(self, line: bytearray) -> None:
        record = _RECORD.match(line)
        level = logging.getLevelNamesMapping()[record[1].decode()] if record else logging.INFO
        for start in range(0, len(line) or 1, MAX_LINE_BYTES):
            if not self._has_room():
                self._dropped += 1
                return
            piece = line[start : start + MAX_LINE_BYTES]
            self._logged_bytes += len(piece)
            self._logged_lines += 1
            # A job must not be able to write lines of its own making, or colours, into the log.
            text = piece.decode("utf-8", "backslashreplace").rstrip("\r").translate(_CONTROL)
            log.log(level, "%s: %s", self._label, text, extra=self._extra)

    def _say_dropped(self) -> None:
        if self._dropped:
            log.warning(
                "%s: %d lines of output dropped: over %d lines or %d KiB a second",
                self._label,
                self._dropped,
                MAX_LOGGED_LINES,
                MAX_LOGGED_BYTES >> 10,
                extra=self._extra,
            )
            self._dropped = 0
