"""Growing over several databases: where an organisation lives, and the arithmetic of a billion jobs a day."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts.routing import shard_of
from scripts.shards import JOBS_A_DAY, Cost, plan_for

ROOT = Path(__file__).parent.parent


def test_organisations_are_spread_and_few_move_when_a_shard_is_added() -> None:
    before = [f"shard-{n}" for n in range(4)]
    organizations = [f"organization {n}" for n in range(4_000)]
    homes = {name: shard_of(name, before) for name in organizations}
    assert all(850 < count < 1_150 for count in Counter(homes.values()).values())
    moved = {name: new for name in organizations if (new := shard_of(name, [*before, "new"])) != homes[name]}
    assert set(moved.values()) == {"new"}
    assert 650 < len(moved) < 950  # a fifth
    assert shard_of("acme", ["shard-1", "shard-0"]) == shard_of("acme", ["shard-0", "shard-1"]) == "shard-0"


def test_the_plan_is_what_the_cost_of_a_job_makes_of_a_billion() -> None:
    cost = Cost(database_us=400, batched_us=40, removal_us=20, worker_us=500, wal_bytes=1_500, stored_bytes=600)
    plan = plan_for(cost)
    # 11,574 a second, 34,722 at the peak; 14.6 cores, of which each shard may give 8/3.
    assert (plan.shards, round(plan.jobs_a_second), round(plan.busy_cores_at_peak, 1)) == (6, 1_929, 2.4)
    assert plan.workers == 35
    assert plan.wal_mb_a_second == pytest.approx(8.7, abs=0.1)
    assert plan.kept_days == pytest.approx(plan.shards * 100e9 / (JOBS_A_DAY * 600))


def test_two_databases_do_the_jobs_of_their_own_organisations() -> None:
    """Real servers and workers; the script itself asserts that each organisation stays on its own."""
    run = subprocess.run(
        [sys.executable, "-m", "scripts.shards", "--jobs", "200", "--organizations", "20", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    cost = found["cost"]  # times in the kernel's ticks, of which so few jobs may take none
    assert min(cost.values()) >= 0
    assert min(cost["wal_bytes"], cost["stored_bytes"]) > 0
    assert found["plan"]["shards"] >= 4
