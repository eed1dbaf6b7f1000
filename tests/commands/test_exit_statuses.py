"""Every exit status that is documented occurs, and the reference and the help name the same ones."""

import os
import re
import subprocess
import sys
from pathlib import Path

from supervisor.leases import EXIT_BLOCKED
from tests.commands.conftest import Connection, Oomph
from tests.commands.terminal import terminal

REFERENCE = Path(__file__).parents[2] / "docs/reference/exit-statuses.md"


def documented() -> set[int]:
    return {int(number) for number in re.findall(r"^\| (\d+) \|", REFERENCE.read_text(), re.MULTILINE)}


def test_the_help_and_the_reference_name_the_same(anywhere: Oomph) -> None:
    told = anywhere("--help").out.partition("Exit status:")[2]
    assert {int(number) for number in re.findall(r"\b\d+\b", told)} == documented() == {0, 1, 2, 75, 130}


def test_done_refused_and_misused(oomph: Oomph, anywhere: Oomph) -> None:
    assert oomph("jobs", "list").status == 0
    oomph("jobs", "show", "1").refused()
    anywhere("jobs", "list").refused()
    oomph("jobs", "list", "--status", "lost").misused()
    oomph("no-such-command").misused()


def test_ctrl_c(url: str, db: Connection) -> None:
    with terminal("top", DATABASE_URL=url) as top:
        top.wait_frame("^q ends")
        top.press("\x03")
        assert top.end() == 130


def test_try_again() -> None:
    """It occurs in tests/worker/test_leases.py: a loop that is blocked when the lease is lost ends the process."""
    assert EXIT_BLOCKED == 75


def test_a_full_disk_below_the_output_is_told(url: str) -> None:
    command = [sys.executable, "-c", "from supervisor.commands import main; main()", "jobs", "list", "--json"]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            command,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "DATABASE_URL": url},
        )
    assert result.returncode == 1
    assert result.stderr.startswith("Error: no space is left")
