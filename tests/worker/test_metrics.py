"""What a monitor sees of a worker: metrics of real jobs, and health that follows the database and the template."""

import os
import re
import signal
import urllib.error
import urllib.request
from pathlib import Path

from supervisor.monitor.catalog import CATALOG
from supervisor.monitor.exposition import CONTENT_TYPE
from supervisor.testing import wait_for
from tests.proxy import Proxy
from tests.worker.app import AGENT, DEADLY, INGEST, SYSTEM
from tests.worker.conftest import Bench
from tests.worker.monitor import Monitor, monitor_of, watched


def test_a_scrape_tells_every_metric_and_only_those(bench: Bench) -> None:
    _, seen = watched(bench)
    bench.wait(bench.put(AGENT), "succeeded")
    with urllib.request.urlopen(f"http://{seen.address}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"] == CONTENT_TYPE
    families = seen.families()
    known = {family.name.removesuffix("_total"): family for family in CATALOG}
    assert families.keys() == known.keys()
    for name, family in families.items():
        assert family.type == known[name].type
        assert family.documentation == known[name].help
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(known[name].labels)


def test_jobs_show_while_they_run_and_when_they_have_ended(bench: Bench) -> None:
    _, seen = watched(bench, WORKER_SYSTEM_CONCURRENCY="1")
    assert seen.value("oomph_slots_in_use", pool="agent") == 0
    waiting = [bench.put(AGENT, "wait", 300) for _ in range(2)]
    child = bench.put(INGEST, "wait", 300)
    for job_id in [*waiting, child]:
        bench.wait(job_id, "running")
    assert seen.value("oomph_slots_in_use", pool="agent") == 2
    assert seen.value("oomph_slots", pool="agent") == 10
    assert seen.value("oomph_children", pool="ingest") == 1
    assert seen.wait_value("oomph_children_memory_bytes", 1, pool="ingest") >= 1
    for number in range(3):
        bench.wait(bench.put(SYSTEM), "succeeded")
        seen.wait_value("oomph_attempts_total", number + 1, kind="system-work", verdict="succeeded")
    failing = bench.put(AGENT, "fail once")
    bench.wait(failing, "succeeded")
    assert seen.wait_value("oomph_attempts_total", 1, kind="agent-work", verdict="failed") == 1
    families = seen.families()
    runs = {
        s.labels["kind"]: s.value for s in families["oomph_attempt_run_seconds"].samples if s.name.endswith("count")
    }
    waits = {s.labels["kind"]: s.value for s in families["oomph_job_wait_seconds"].samples if s.name.endswith("_count")}
    assert (runs["system-work"], runs["agent-work"], runs["ingest-work"]) == (3, 2, 0)
    assert (waits["system-work"], waits["agent-work"], waits["ingest-work"]) == (3, 4, 1)
    assert 0 < (seen.value("oomph_notify_round_trip_seconds") or 0) < 5
    assert 0 < (seen.value("oomph_lease_margin_seconds") or 0) <= 5
    assert abs(seen.value("oomph_clock_offset_seconds") or 0) < 0.5


def test_a_killed_child_shows_in_its_verdict(bench: Bench) -> None:
    _, seen = watched(bench, WORKER_PAUSE_AFTER_KILLS="3")
    told = {tuple(sample.labels.values()) for sample in seen.families()["oomph_attempts"].samples}
    assert seen.value("oomph_attempts_total", kind="deadly", verdict="killed") == 0  # a rate needs it
    bench.wait(bench.put(DEADLY, "be killed"), "dead")
    # It is counted once the commit is answered, and seen by others before.
    assert seen.wait_value("oomph_attempts_total", 3, kind="deadly", verdict="killed") == 3
    assert {tuple(sample.labels.values()) for sample in seen.families()["oomph_attempts"].samples} == told
    assert seen.wait_value("oomph_kind_paused", 1, kind="deadly") == 1
    assert seen.value("oomph_kind_paused", kind="ingest-work") == 0


def test_dead_jobs_are_counted_and_failures_that_are_tried_again_are_not(bench: Bench) -> None:
    _, seen = watched(bench, WORKER_UNKNOWN_KIND_GRACE_SECONDS="0")
    assert seen.value("oomph_jobs_dead_total", kind="agent-work") == 0
    bench.wait(bench.put(AGENT, "fail once"), "succeeded")
    bench.wait(bench.put(AGENT, "fail"), "dead")
    assert seen.wait_value("oomph_jobs_dead_total", 1, kind="agent-work") == 1
    bench.db.execute("INSERT INTO background_jobs (kind, pool, payload) VALUES ('nobodys', 'system', '{}')")
    assert seen.wait_value("oomph_jobs_dead_total", 1, kind="nobodys") == 1


def test_the_queue_shows_by_state(bench: Bench) -> None:
    with bench.kit.db.transaction():
        bench.db.execute(
            "INSERT INTO background_jobs (kind, pool, run_after, payload) "
            "SELECT 'system-work', 'system', now() + interval '1 day', '{}' FROM generate_series(1, 7)"
        )
    _, seen = watched(bench, WORKER_POOLS="agent")
    for _ in range(2):
        bench.put(INGEST)
    assert seen.wait_value("oomph_queue_jobs", 7, kind="system-work", state="scheduled") == 7
    assert seen.wait_value("oomph_queue_jobs", 2, kind="ingest-work", state="due") == 2
    assert 0 < (seen.value("oomph_queue_oldest_age_seconds", kind="ingest-work") or 0) < 60
    assert seen.value("oomph_queue_oldest_age_seconds", kind="system-work") == 0


def test_all_who_ask_share_one_look_at_the_queue(bench: Bench) -> None:
    _, seen = watched(bench)
    seen.wait_value("oomph_queue_sample_success", 1)
    before = seen.value("oomph_queue_jobs", kind="system-work", state="scheduled")
    bench.db.execute(
        "INSERT INTO background_jobs (kind, pool, run_after, payload) "
        "VALUES ('system-work', 'system', now() + interval '1 day', '{}')"
    )
    assert seen.value("oomph_queue_jobs", kind="system-work", state="scheduled") == before


def test_a_worker_that_is_rescued_shows_as_lost(bench: Bench) -> None:
    first = bench.start(WORKER_POOLS="agent")
    job_id = bench.put(AGENT, "wait", 300)
    bench.wait(job_id, "running")
    _, seen = watched(bench, WORKER_POOLS="system")
    first.signal(signal.SIGKILL)
    assert seen.wait_value("oomph_attempts_total", 1, kind="agent-work", verdict="worker_lost") == 1
    assert seen.value("oomph_jobs_dead_total", kind="agent-work") == 0


def test_a_frozen_database_makes_a_worker_unready_but_not_dead(bench: Bench) -> None:
    with Proxy(bench.url) as network:
        _, seen = watched(bench, network.url, WORKER_CALL_TIMEOUT_SECONDS="1")
        seen.wait_ready(200)
        network.freeze()
        seen.wait_ready(503, "lease")
        assert seen.get("/livez") == (200, "ok\n")
        status, text = seen.get("/metrics")
        assert status == 200
        assert "oomph_queue_jobs{" not in text or "oomph_queue_sample_success 1" in text
        assert seen.value("oomph_worker_ready") == 0
        network.heal()
        seen.wait_ready(200, seconds=60)
        assert seen.get("/livez") == (200, "ok\n")


def test_a_worker_without_its_template_is_unready_until_it_is_back(bench: Bench) -> None:
    worker, seen = watched(bench)
    seen.wait_ready(200)
    template = int(worker.wait_log(r"template up: pid (\d+)")[1])
    os.kill(template, signal.SIGSTOP)  # it serves no more, and is found out by its silence
    seen.wait_ready(503, "template", seconds=40)
    assert seen.get("/livez") == (200, "ok\n")
    seen.wait_ready(200, seconds=40)
    assert seen.value("oomph_template_restarts_total") == 1


def test_a_draining_worker_is_unready_and_still_tells(bench: Bench) -> None:
    worker, seen = watched(bench)
    bench.wait(bench.put(AGENT, "wait", 300), "running")
    worker.signal(signal.SIGTERM)
    seen.wait_ready(503, "draining")
    assert seen.get("/livez")[0] == 200
    assert seen.value("oomph_slots_in_use", pool="agent") == 1


def test_a_start_can_be_watched(bench: Bench) -> None:
    with Proxy(bench.url) as network:
        worker = bench.launch(network.url, WORKER_HTTP="0")
        seen = monitor_of(worker)
        assert seen.get("/livez")[0] == 200
        seen.wait_ready(200)


def test_a_blocked_loop_answers_no_probe(bench: Bench) -> None:
    _, seen = watched(bench)
    bench.put(AGENT, "block", 4)
    wait_for(lambda: not _answers(seen), "no answer of a blocked loop")
    wait_for(lambda: _answers(seen), "an answer after the block")
    assert seen.wait_value("oomph_loop_lag_seconds_sum", 1) > 1


def _answers(seen: Monitor) -> bool:
    try:
        return seen.get("/livez", seconds=1) == (200, "ok\n")
    except (TimeoutError, urllib.error.URLError):
        return False


def test_an_address_in_use_is_refused_before_anything_starts(bench: Bench) -> None:
    _, seen = watched(bench)
    other = bench.launch(WORKER_HTTP=seen.address)
    assert other.wait() == 1
    assert re.search(rf"WORKER_HTTP={seen.address} cannot be listened on: Address already in use", other.text())


def test_without_the_setting_nothing_listens(bench: Bench) -> None:
    worker = bench.start()
    connections = Path(f"/proc/{worker.pid}/net/tcp").read_text().splitlines()
    listening = {line.split()[9] for line in connections if line.split()[3] == "0A"}
    ours = {os.readlink(f"/proc/{worker.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{worker.pid}/fd")}
    assert not {f"socket:[{inode}]" for inode in listening} & ours
