import logging
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest

from jobs.reports import MAX_LIMIT
from supervisor.commands.output import first_line, printable, shown, span
from supervisor.logs import OneLine
from tests.commands.conftest import Oomph

# In the order in which a newcomer needs them.
COMMANDS = [
    "migrate", "worker", "doctor", "enqueue", "ingest", "search", "reindex", "top",
    "page", "documents list", "documents show", "documents delete", "jobs list", "jobs show", "jobs retry",
    "jobs cancel", "kinds list", "kinds pause", "kinds resume", "schedules list", "schedules run", "workers list",
    "audit list",
]  # fmt: skip


def test_help_lists_every_command_on_one_line_in_order(anywhere: Oomph) -> None:
    out = anywhere("--help").out
    lines = out.splitlines()
    found = [next(number for number, line in enumerate(lines) if line.startswith(f"  {name} ")) for name in COMMANDS]
    assert found == sorted(found)
    assert max(map(len, lines)) <= 80
    assert "..." not in out.partition("Options:")[2]
    assert anywhere("-h").out == out


def test_every_command_has_help_and_every_database_command_its_options(anywhere: Oomph) -> None:
    for name in COMMANDS:
        out = anywhere(*name.split(), "--help").out
        assert "--database URL" in out
        assert "--embedded DIR" in out
        assert ("--json" in out) or name not in (
            "enqueue",
            "ingest",
            "search",
            "reindex",
            "documents show",
            "jobs show",
        )
        assert ("--actor NAME" in out) == (
            name.split()[-1] in {"retry", "cancel", "pause", "resume", "delete", "run", "page"} or name == "audit list"
        )
        if name.endswith("list"):
            assert "--json" in out
            assert f"1<=x<={MAX_LIMIT}" in out


def test_the_version_is_printed(anywhere: Oomph) -> None:
    assert anywhere("--version").out.startswith("oomph ")


def test_an_unknown_command_suggests_one(anywhere: Oomph) -> None:
    assert "'jobs'" in anywhere("job").misused()


def test_help_imports_nothing_that_only_work_needs() -> None:
    script = (
        "import sys; from supervisor.commands import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'psycopg', 'pydantic', 'rich', 'asyncio', 'jobs', 'pools'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.047, "47 ms"), (59, "59 s"), (5400, "1 h 30 min"), (90_061, "1 d 1 h"), (-5, "-5 s")],
)
def test_a_span_names_its_two_largest_units(seconds: float, text: str) -> None:
    assert span(timedelta(seconds=seconds)) == text


def test_values_are_shown_as_people_read_them() -> None:
    berlin = timezone(timedelta(hours=2))
    assert shown(datetime(2030, 1, 1, 1, tzinfo=berlin)) == "2029-12-31 23:00:00"
    assert shown(datetime(2030, 1, 1, 1, tzinfo=UTC)) == "2030-01-01 01:00:00"
    assert (shown(None), shown(True), shown(1234.56), shown({"a": "ü"})) == ("", "yes", "1,234.6", '{"a": "ü"}')


def test_nothing_printable_steers_a_terminal() -> None:
    assert printable("a\tb\n\x1b[2Jc\x00\u202e") == "a   b\n�[2Jc��"
    assert first_line("\n  one\ntwo") == "one …"
    assert first_line("one\n") == "one"


def test_a_log_record_stays_on_its_line() -> None:
    record = logging.LogRecord("oomph.x", logging.ERROR, __file__, 1, "two\nlines %s", ("and\r\nmore",), None)
    record.created, record.msecs = 0.0, 7.0
    assert OneLine().format(record) == r"1970-01-01T00:00:00.007Z ERROR oomph.x: two\nlines and\r\nmore"
