"""No decision of a worker depends on this host's clock: timers are monotonic, leases are the database's."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("jobs", "pools", "supervisor")
SHOWN_TO_PEOPLE = ("supervisor/commands/", "supervisor/logs.py", "supervisor/testing/")

DATES = {"now", "utcnow", "today"}  # of any class: nothing else of ours bears these names
TIMES = {"time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime", "clock_gettime", "clock_gettime_ns"}

# The lines where a worker may ask this host for the date, and why that is no harm.
MAY_ASK = {
    ("pools/loop.py", "deadline = datetime.now(UTC) + job.timeout"): "what a handler is shown; the timer is monotonic",
    ("pools/life.py", "deadline=datetime.now(UTC) + job.timeout,"): "the same",
    ("jobs/documents/folder.py", "return not 0 <= time.time() - found.st_mtime <= SETTLED_SECONDS"): (
        "compared with when a file was changed, by the same clock"
    ),
    ("jobs/queue_sample.py", "began, at = time.monotonic(), time.time()"): "how far this clock is from the database's",
    ("jobs/worker_report.py", "sent, began = time.time(), time.monotonic()"): (
        "how far this clock is from the database's"
    ),
    ("supervisor/monitor/meter.py", "now = time.time() + self.clock_offset"): (
        "a figure of how long jobs waited; corrected by how far this clock is from the database's"
    ),
    ("supervisor/notices/mail.py", "now=datetime.now(UTC),"): "the Date of a mail",
    ("supervisor/notices/webhook.py", "now = int(time.time())"): "the signed timestamp of a call",
    ("pools/ownership.py", "born_at: float = field(default_factory=time.time)"): (
        "compared with the ctime of files in memory, by the same clock: after a step back, the watch misses those "
        "that a running job then makes and does not map"
    ),
    ("supervisor/doctor/database.py", "sent, started = time.time(), time.monotonic()"): (
        "it tells how far this clock is from the server's"
    ),
}


def asked(source: str) -> Iterator[int]:
    """The numbers of the lines that ask this host for the date, by whatever name."""
    tree = ast.parse(source)
    clocks = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "time"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            if TIMES & {alias.name for alias in node.names} or node.names[0].name == "*":
                yield node.lineno
        elif isinstance(node, ast.Attribute):
            of_clock = isinstance(node.value, ast.Name) and node.value.id in clocks
            if node.attr in DATES or (of_clock and node.attr in TIMES):
                yield node.lineno


def lines_of_workers() -> Iterator[tuple[str, str]]:
    """Each file and line that asks, without what follows a `#`."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            where = str(path.relative_to(ROOT))
            if not where.startswith(SHOWN_TO_PEOPLE):
                source = path.read_text()
                for number in asked(source):
                    yield where, source.splitlines()[number - 1].partition("#")[0].strip()


def test_no_decision_of_a_worker_depends_on_this_hosts_clock() -> None:
    """Scenario 36: a step of the clock moves nothing."""
    assert sorted(lines_of_workers()) == sorted(MAY_ASK)


@pytest.mark.parametrize(
    ("source", "asks"),
    [
        ("import time\ntime.time()", True),
        ("import time as clock\nclock.time()", True),
        ("import time\nfield(default_factory=time.time)", True),
        ("from time import time as wall\nwall()", True),
        ("from time import *", True),
        ("import datetime\ndatetime.datetime.now()", True),
        ("from datetime import datetime as moment\nmoment.utcnow()", True),
        ("from datetime import date\ndate.today()", True),
        ("import time\ntime.monotonic(); time.sleep(1)", False),
        ("from time import monotonic, sleep", False),
        ("loop.time()", False),
        ("class A:\n    time = 1", False),
    ],
)
def test_a_question_for_the_date_is_found_under_whatever_name(source: str, asks: bool) -> None:
    assert bool(list(asked(source))) == asks
