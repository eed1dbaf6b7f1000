"""Workers on several hosts with one database: what is added up, kept apart, and rolled out."""

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from supervisor.testing.waiting import wait_for
from tests.hosts.app import AGENT, HURRIED, INGEST, NEW, OLD, SYSTEM
from tests.hosts.conftest import Site

pytestmark = pytest.mark.whole

COMPILER = shutil.which("cc")
TICKED = "SELECT 1 FROM background_jobs WHERE kind = 'tick' AND status = 'succeeded' HAVING count(*) > 2"


def test_throughput_adds_up(site: Site) -> None:
    settings = {"WORKER_POOLS": "agent", "WORKER_AGENT_CONCURRENCY": "4"}
    site.start("small", **settings)
    alone = _rate(site, site.put(AGENT, 0.25, 40))
    site.start("big", **settings)
    jobs = site.put(AGENT, 0.25, 80)
    together = _rate(site, jobs)
    assert site.ran_on(jobs) == {"small", "big"}
    print(
        f"\njobs a second: one host {alone:.1f}, two hosts {together:.1f}, which is {together / alone:.2f} times that"
    )
    assert together > alone


def _rate(site: Site, jobs: list[int]) -> float:
    site.wait(jobs, "succeeded")
    moments = [line.at for line in site.journal(jobs)]
    return len(jobs) / (max(moments) - min(moments))


def test_each_pool_has_its_hosts(site: Site) -> None:
    """Ingest on the big one alone: without it those jobs wait, although others have slots."""
    site.start("small", WORKER_POOLS="agent,system")
    parsing, others = site.put(INGEST, number=4), site.put(AGENT, number=10) + site.put(SYSTEM, number=10)
    site.wait(others, "succeeded")
    assert {row[0] for row in site.rows(parsing, "status")} == {"queued"}
    big = site.start("big", WORKER_POOLS="ingest", WORKER_UNKNOWN_KIND_GRACE_SECONDS="60")
    more = site.put(AGENT, number=10) + site.put(SYSTEM, number=10)
    site.wait(parsing + more, "succeeded")
    assert site.ran_on(parsing) == {"big"}
    assert site.ran_on(others + more) == {"small"}
    assert site.rows(parsing, "attempt") == [(1,)] * 4
    assert big.stop() == 0


def test_a_rolling_deploy_loses_nothing_and_charges_nothing(site: Site) -> None:
    """Two versions at once, each with a kind that the other does not know; and back again."""
    settings = {
        "WORKER_POOLS": "agent,system",
        "WORKER_UNKNOWN_KIND_GRACE_SECONDS": "60",
        "WORKER_SHUTDOWN_SECONDS": "0.5",
    }
    first = [site.launch(host, "v1", **settings) for host in ("small", "big")]
    for worker in first:
        worker.wait_ready()
    in_both, ahead = site.put(AGENT, 3, 6), site.put(NEW, number=3)  # the service was deployed first
    site.wait(in_both, "running")
    jobs = in_both + ahead
    for host, old in zip(("small", "big"), first, strict=True):
        assert old.stop() == 0
        new = site.start(host, "v2", **settings)
        jobs += site.put(AGENT, number=5)
    left_over = site.put(OLD, number=3)
    site.wait(jobs, "succeeded")
    assert {row[0] for row in site.rows(left_over, "status")} == {"queued"}
    assert new.stop() == 0
    site.start("big", "v1", **settings)
    site.wait(left_over, "succeeded")
    assert set(site.rows(jobs + left_over, "attempt, status")) == {(1, "succeeded")}
    assert site.db.execute("SELECT DISTINCT verdict, charged FROM background_attempts").fetchall() == [
        ("released", False)
    ]


@pytest.fixture
def shifted_clock(tmp_path: Path) -> str:
    """A library to preload. The package faketime is none: it breaks Python's own sleep."""
    if COMPILER is None:
        pytest.skip("there is no C compiler (cc) here to make a clock that is off")
    library = tmp_path / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return str(library)


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_an_hour_off_changes_nothing(site: Site, shifted_clock: str, hours: int) -> None:
    """Scenario 36, with a host whose clock is really off."""
    off = site.start("small", "ticking", LD_PRELOAD=shifted_clock, CLOCK_SHIFT=str(hours * 3600))
    assert abs(_logged_at(off.text()) - datetime.now(UTC) - timedelta(hours=hours)) < timedelta(minutes=1)
    held = site.put(AGENT, 4) + site.put(INGEST, 4)  # longer than a lease
    later = site.put(AGENT, run_after=datetime.now(UTC) + timedelta(seconds=3))
    hurried = site.put(HURRIED, 30)
    site.wait(held + hurried, "running")
    right = site.start("big", "ticking")
    site.wait(hurried, "dead")
    site.wait(held + later, "succeeded")
    assert site.ran_on(held) == {"small"}
    assert site.rows(held, "claim") == [(1,), (1,)]
    assert site.rows(later, "started_at BETWEEN run_after AND run_after + interval '3 s'") == [(True,)]
    assert site.db.execute("SELECT DISTINCT verdict FROM background_attempts").fetchall() == [("timed_out",)]
    wait_for(lambda: site.db.execute(TICKED).fetchone(), "occurrences of the schedule")
    ticks = "SELECT max(abs(extract(epoch FROM occurrence - created_at))) < 3 FROM background_jobs WHERE kind = 'tick'"
    assert site.db.execute(ticks).fetchone() == (True,)
    for worker in (off, right):
        assert "lease" not in worker.text()
        assert worker.stop() == 0


def _logged_at(log: str) -> datetime:
    return datetime.fromisoformat(log.split(maxsplit=1)[0])
