"""What docs/how-to/poolers.md says of connections, and the pgbouncer.ini that it gives."""

import configparser
import re
from pathlib import Path

from supervisor.doctor.database_checks import WORKER_CONNECTIONS
from supervisor.testing.waiting import wait_for
from tests.docs.pages import DOCS, blocks
from tests.poolers.conftest import Pooled
from tests.worker.app import AGENT, INGEST, SYSTEM
from tests.worker.conftest import Bench

PAGE = DOCS / "how-to" / "poolers.md"
HELD = """
    SELECT application_name, count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'oomph%' GROUP BY 1
"""


def ini() -> configparser.ConfigParser:
    (text,) = [block.text for block in blocks(PAGE) if "[pgbouncer]" in block.text]
    parsed = configparser.ConfigParser(comment_prefixes=(";",))
    parsed.read_string(text)
    return parsed


def held(bench: Bench) -> dict[str, int]:
    return {str(name): int(count) for name, count in bench.db.execute(HELD).fetchall()}


def work(bench: Bench) -> None:
    jobs = [bench.put(task, "wait", 0.2) for task in (AGENT, SYSTEM, INGEST) for _ in range(10)]
    for job_id in jobs:
        bench.wait(job_id, "succeeded")


def test_a_worker_holds_no_more_connections_than_the_page_says(bench: Bench) -> None:
    table = PAGE.read_text().partition("## What a worker holds")[2].partition("\n\nSix at most, ")[0]
    counts = re.findall(r"^\|[^|]+\| (\d[^|]*)\|", table, re.MULTILINE)
    assert sum(max(map(int, re.findall(r"\d", count))) for count in counts) == WORKER_CONNECTIONS == 6
    bench.start()
    work(bench)
    names = held(bench)
    assert (names["oomph lease"], names["oomph listener"]) == (1, 1)
    assert names["oomph worker"] in (3, 4)  # claims, successes, and one or two of the pool
    assert sum(names.values()) <= WORKER_CONNECTIONS


def test_a_worker_that_polls_holds_one_less(bench: Bench) -> None:
    bench.start(WORKER_LISTEN="off")
    work(bench)
    assert "oomph listener" not in held(bench)


def test_the_ini_of_the_page_serves_a_worker(bench: Bench, pooled: Pooled, tmp_path: Path) -> None:
    given = ini()
    size = re.search(r"pool_size=(\d+)", given["databases"]["jobs_workers"])
    assert size is not None
    through = pooled(**given["pgbouncer"], default_pool_size=size[1])
    worker = bench.start(through, WORKER_LISTEN_URL=bench.url, WORKER_POLL_SECONDS="60")
    wait_for(lambda: held(bench).get("oomph listener") == 1, "LISTEN goes directly")
    work(bench)
    assert worker.stop() == 0
    assert "WARNING" not in worker.text()
    assert "WARNING" not in (tmp_path / "pgbouncer.log").read_text()
