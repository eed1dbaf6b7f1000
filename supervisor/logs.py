"""The log of a worker: one line a record on stderr, `time level logger message`, times in UTC."""

import logging
import sys
import time

LEVELS = ("debug", "info", "warning", "error")


class OneLine(logging.Formatter):
    """A record with its traceback on one line, so that a collector that splits at line ends keeps it together."""

    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  (logging's name)
        moment = super().formatTime(record, datefmt)
        return self.default_msec_format % (moment, record.msecs)

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\r", "\\r").replace("\n", "\\n")


def configure_logging(level: str) -> None:
    """Send all records of at least `level` to stderr; libraries' own chatter below WARNING is left out."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for library in ("asyncio", "psycopg", "psycopg.pool"):
        logging.getLogger(library).setLevel(logging.WARNING)
