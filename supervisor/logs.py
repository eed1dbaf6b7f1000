"""The log of a worker: one line a record on stderr, for people or for machines, times in UTC.

What concerns a job says which, and which attempt (see `jobs.subject`): as fields of their own in JSON, and at the end
of a line for people where the message does not say it itself.
"""

import json
import logging
import re
import sys
import threading
import time

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
REMIND_SECONDS = 600.0  # an outage that goes on is worth a line that often

# A message may quote what a job says: no end of a line but ours, and nothing that steers the terminal that shows it.
_UNOBEYED = {code: repr(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029) if code != 0x09}

_ADDRESS = re.compile(r"0x[0-9a-f]+")  # of an object: it makes one message many


class OneLine(logging.Formatter):
    """A record with its traceback on one line, so that a collector that splits at line ends keeps it together."""

    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        # Not above: the help wants the levels, and none of what jobs need.
        from jobs.redaction import redact
        from jobs.subject import subject

        self._redact = redact
        self._subject = subject
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  (logging's name)
        moment = super().formatTime(record, datefmt or self.datefmt)
        return self.default_msec_format % (moment, record.msecs)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        facts = [f"{name} {value}" for name, value in self._subject_of(record).items()]
        untold = [fact for fact in facts if not re.search(rf"\b{fact}\b", record.message)]
        return super().formatMessage(record) + (f" [{', '.join(untold)}]" if untold else "")

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(super().format(record)).translate(_UNOBEYED)

    def _subject_of(self, record: logging.LogRecord) -> dict[str, int]:
        """`job` and `attempt`, as far as they are known."""
        if (job_id := getattr(record, "job_id", None)) is not None:
            attempt = getattr(record, "attempt", None)
            return {"job": job_id} if attempt is None else {"job": job_id, "attempt": attempt}
        job = self._subject.get()
        return {} if job is None else {"job": job.id, "attempt": job.attempt}


class JsonLine(OneLine):
    """A record as one JSON object a line: time, level, logger and message.

    And where there are any: job, attempt, trace_id, span_id, error, stack.
    """

    def __init__(self) -> None:
        from jobs.tracing import current_trace, trace_ids

        self._current_trace, self._trace_ids = current_trace, trace_ids
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redact(record.getMessage()),
            **self._subject_of(record),
            **self._trace_ids(self._trace_of(record)),
        }
        if record.exc_info:
            told["error"] = self._redact(self.formatException(record.exc_info))
        if record.stack_info:
            told["stack"] = self.formatStack(record.stack_info)
        return json.dumps(told)

    def _trace_of(self, record: logging.LogRecord) -> str | None:
        """The attempt's, if the call knows an attempt; else that of the innermost span around it."""
        if hasattr(record, "job_id"):
            return getattr(record, "trace_context", None)
        return self._current_trace()


def configure_logging(level: str, form: str = "text") -> None:
    """Send all records of at least `level` to stderr; libraries' own chatter below WARNING is left out."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine() if form == "json" else OneLine())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    threading.excepthook = _log_thread
    for library in ("asyncio", "psycopg", "psycopg.pool"):
        logging.getLogger(library).setLevel(logging.WARNING)
    pool = logging.getLogger("psycopg.pool")  # which else says in every second of an outage what each connection met
    for earlier in [found for found in pool.filters if isinstance(found, SaidOnce)]:
        pool.removeFilter(earlier)
    pool.addFilter(SaidOnce())


def _log_thread(failed: threading.ExceptHookArgs) -> None:
    """A thread that somebody started has ended with an exception, which Python would print as it is."""
    if failed.exc_type is not SystemExit:
        name = failed.thread.name if failed.thread is not None else "?"
        told = (failed.exc_type, failed.exc_value or failed.exc_type(), failed.exc_traceback)
        logging.getLogger("oomph.threads").error("the thread %s failed", name, exc_info=told)


class SaidOnce(logging.Filter):
    """Lets a message pass that has not been said for `REMIND_SECONDS`."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        self._said = {words: at for words, at in self._said.items() if now - at < REMIND_SECONDS}
        words = _ADDRESS.sub("", record.getMessage())
        return self._said.setdefault(words, now) == now
