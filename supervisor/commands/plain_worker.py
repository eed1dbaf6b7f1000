"""`oomph worker` for a long life: without the command line's library, 3 MB that an idle worker would keep for nothing.

It understands only what is spelt plainly. Whatever else the arguments say, `--help` and every mistake included, is for
the library, whose `worker` then does the same; so both have the same options, messages and exit statuses.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from supervisor.errors import explain
from supervisor.logs import LEVELS
from supervisor.serve import Options, serve

VALUED = ("app", "pools", "database", "embedded", "log-level")
FLAGS = ("drain",)
INTERRUPTED = 130  # what a shell calls a death by SIGINT, and the library too


def understood(arguments: Sequence[str]) -> Options | None:
    """What the arguments after `worker` say, or None where that is not plain."""
    given: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or name not in (FLAGS if not equals else ()) + VALUED:
            return None
        if name in VALUED and not equals:
            value = next(rest, "-")
            if value.startswith("-"):
                return None
        given[name] = value
    if given.get("log-level", "info") not in LEVELS or (given.get("database") and "embedded" in given):
        return None
    return Options(
        app=given.get("app"),
        pools=given.get("pools"),
        database=given.get("database", ""),
        embedded=Path(given["embedded"]) if "embedded" in given else None,
        drain="drain" in given,
        log_level=given.get("log-level", "info"),
    )


def run(options: Options) -> int:
    """Serve; returns the exit status, having told an expected error on stderr."""
    try:
        return serve(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        paragraph = explain(error)
        if paragraph is None:
            raise
        print(f"Error: {paragraph}", file=sys.stderr)
        return 1
