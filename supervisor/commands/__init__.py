"""The command line: `oomph`.

    application.py   the tree of commands       group.py     the help's sections; expected errors become a paragraph
    options.py       what commands share        database.py  the one way to a connection
    output.py        tables for people, JSON for programs
    progress.py      a bar for what takes long             completion.py  what a shell is offered
    asking.py        what a terminal is asked              job_filter.py  the options that choose jobs
    plain_worker.py  a worker that is started without options, or plain ones, needs nothing of the above

Status 0: done. 1: refused or failed, with the reason on stderr, or `doctor` found an error. 2: wrong usage. 75: a
worker that could only end at once, because its loop was blocked when it lost its lease; start it again. 130: Ctrl-C.

`--json` prints, on stdout and nothing else there: of a list, an array of objects; of `show`, of a kind that is paused
or resumed, of `migrate` and of `top`, one object; of any other action, an array with one object for each thing that it
was about; with `--all`, one object that counts them. The names are those of the tables' columns; moments are ISO 8601
in UTC, spans are seconds.

A command imports what it needs when it runs: `oomph --help` stays quick, and nothing of `jobs` is imported before
`main` has put the working folder last, where a user's own `jobs.py` cannot stand in for the package.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]

_ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` (default: the process's own) name, and exit with its status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    _open_standard_streams()
    _put_working_folder_last()
    if given[:1] == ["worker"]:
        from supervisor.commands import plain_worker

        if (options := plain_worker.understood(given[1:])) is not None:
            sys.exit(plain_worker.run(options))
    from supervisor.commands.application import cli

    cli(args=given, prog_name="oomph")


def _open_standard_streams() -> None:
    """Where one was closed, the next file or socket would get its number, and whoever prints would write into that."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115  (by number, for the life of the process)
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115


def _put_working_folder_last() -> None:
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        sys.exit("Error: the working folder has been deleted; start oomph in another one")
    ours = ("", str(folder))
    if folder != _ROOT and any(entry in sys.path for entry in ours):
        sys.path[:] = [*(entry for entry in sys.path if entry not in ours), str(folder)]
