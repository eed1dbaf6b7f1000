"""What WORKER_FAILPOINTS may say, what each action does to a process, and what a place costs while it says nothing."""

import os
import signal
import subprocess
import sys
import timeit
from pathlib import Path

import psutil
import pytest

from jobs.failpoints import Failpoint, FailpointError, failpoint, parse
from supervisor.testing.waiting import wait_for

ROOT = Path(__file__).parents[2]
VISITS = 20_000
VISIT = """
from jobs.failpoints import Failpoint, failpoint
for _ in range(3):
    failpoint(Failpoint.CLAIMED)
    print("passed", flush=True)
"""


def visiting(armed: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "WORKER_FAILPOINTS": armed}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", VISIT], cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True
    )


@pytest.mark.parametrize(
    ("armed", "status", "passed"),
    [
        ("", 0, 3),
        ("reaped:kill", 0, 3),
        ("claimed:kill", -signal.SIGKILL, 0),
        ("claimed:exit", 70, 0),
        ("claimed:exit=3", 3, 0),
        ("claimed:raise", 1, 0),
        ("claimed:stall=0.01:2", 0, 3),
        ("reaped:kill, claimed:exit=4", 4, 0),
    ],
)
def test_an_armed_place_does_what_it_is_armed_with(armed: str, status: int, passed: int) -> None:
    process = visiting(armed)
    output, errors = process.communicate(timeout=20)
    assert process.returncode == status, errors
    assert output.count("passed") == passed
    assert errors.count("failpoint claimed:") == (0 if passed == 3 and ":2" not in armed else 2 if ":2" in armed else 1)


def test_stop_stops_the_process_until_somebody_continues_it() -> None:
    process = visiting("claimed:stop")
    wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, "it is stopped")
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=20)
    assert (process.returncode, output.count("passed")) == (0, 3)


@pytest.mark.parametrize(
    ("armed", "complaint"),
    [
        ("nowhere:kill", "no place 'nowhere'"),
        ("claimed", "the action must be one of"),
        ("claimed:explode", "the action must be one of"),
        ("claimed:stall=long", "are numbers"),
        ("claimed:kill:often", "are numbers"),
    ],
)
def test_what_cannot_be_understood_is_refused(armed: str, complaint: str) -> None:
    with pytest.raises(FailpointError, match=complaint):
        parse(armed)


def test_a_worker_does_not_start_with_a_failpoint_that_does_not_exist(url: str) -> None:
    environment = {
        **os.environ,
        "DATABASE_URL": url,
        "WORKER_APP": "tests.worker.app:app",
        "WORKER_FAILPOINTS": "x:kill",
    }
    done = subprocess.run(
        [sys.executable, "-m", "supervisor"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "there is no place 'x'" in done.stderr


def test_every_place_stands_in_the_code_and_nothing_else_does() -> None:
    code = "\n".join(
        path.read_text() for name in ("jobs", "pools", "supervisor") for path in (ROOT / name).rglob("*.py")
    )
    for place in Failpoint:
        assert f"failpoint(Failpoint.{place.name})" in code, f"{place} is visited nowhere"


def test_a_place_costs_next_to_nothing_while_it_is_not_armed() -> None:
    assert not failpoint.__closure__, "this run has armed failpoints"
    best = min(timeit.repeat(lambda: failpoint(Failpoint.CLAIMED), number=VISITS, repeat=5)) / VISITS
    assert best < 2e-6, f"{best * 1e9:.0f} ns a visit; a claim alone costs a thousand times that"
