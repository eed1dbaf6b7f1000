"""Hosts that are cut off from the database, each in another way: invariant 4, by the journal of the handlers."""

from itertools import groupby

import pytest

from supervisor.testing.waiting import wait_for
from tests.hosts.app import AGENT, INGEST, Line
from tests.hosts.conftest import Site

pytestmark = pytest.mark.whole

CUT_OFF = ("small", "big", "third")
AGENTS = 2  # slots of each
SETTINGS = {
    "WORKER_POOLS": "agent,ingest",
    "WORKER_AGENT_CONCURRENCY": str(AGENTS),
    "WORKER_INGEST_CONCURRENCY": "1",
    "WORKER_CALL_TIMEOUT_SECONDS": "1",
    "WORKER_LEASE_SECONDS": "4",  # by when the rescuer has started
}
# It has room for all of them, and a lease that outlasts whatever holds up a busy machine.
RESCUER = {"WORKER_AGENT_CONCURRENCY": "10", "WORKER_INGEST_CONCURRENCY": "3", "WORKER_LEASE_SECONDS": "30"}


def test_hosts_that_are_cut_off_stop_their_jobs_before_another_starts_them(site: Site) -> None:
    """A link that goes down, a network that swallows everything, and one that swallows answers alone."""
    workers = {host: site.launch(host, **SETTINGS) for host in CUT_OFF}
    for worker in workers.values():
        worker.wait_ready()
    long = site.put(AGENT, 8, len(CUT_OFF)) + site.put(INGEST, 8, len(CUT_OFF))
    site.wait(long, "running")
    short = site.put(AGENT, 1, len(CUT_OFF))  # which end while nobody can be told
    site.wait(short, "running")
    jobs = long + short
    site.hosts["small"].take_link_down()
    site.hosts["big"].unplug()
    site.database.lose_answers_to(site.hosts["third"])
    rescuer = site.start("fourth", **SETTINGS | RESCUER)
    for worker in workers.values():
        worker.wait_log("lost its lease")
    wait_for(lambda: not _left_behind(site, jobs), "all claimed by the rescuer")
    for host in (*site.hosts.values(), site.database):
        host.heal()
    for worker in workers.values():
        worker.wait_log("the worker goes on as", 40)
    site.wait(jobs, "succeeded", 40)

    assert "lost its lease" not in rescuer.text()
    lines = site.journal(jobs)
    moved = [job_id for job_id, claim in site.rows(jobs, "id, claim") if claim == 2]
    assert set(moved) >= set(long)
    for job_id in moved:
        _one_after_the_other([line for line in lines if line.job == job_id])
    # Where answers alone are lost, a success is written before the lease is lost, and counts.
    assert {line.host for line in lines if line.job not in moved} <= {"third"}
    assert set(site.rows(jobs, "status, attempt - claim")) == {("succeeded", 0)}
    verdicts = "SELECT verdict, claim, count(*) FROM background_attempts GROUP BY 1, 2"
    assert site.db.execute(verdicts).fetchall() == [("worker_lost", 1, len(moved))]
    for worker in workers.values():
        worker.wait_log("its lease was lost")  # the refusal of what it said too late

    after = site.put(AGENT, 1, 20)
    site.wait(after, "succeeded")
    assert set(CUT_OFF) <= site.ran_on(after)


def _left_behind(site: Site, jobs: list[int]) -> list[int]:
    """Those that neither the rescuer has claimed nor their first claim has ended."""
    found = site.rows(jobs, "id, claim, status")
    return [job_id for job_id, claim, status in found if claim == 1 and status != "succeeded"]


def _one_after_the_other(lines: list[Line]) -> None:
    """The first claim's last sign of life came before the second claim's first one, from another host."""
    first, second = (list(group) for _, group in groupby(sorted(lines, key=lambda line: line.claim), _claim))
    assert {line.host for line in first} < {*CUT_OFF}
    assert {line.host for line in second} == {"fourth"}
    assert max(line.at for line in first) < min(line.at for line in second)


def _claim(line: Line) -> int:
    return line.claim
