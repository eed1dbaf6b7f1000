"""A worker removes what is older than its settings say."""

from tests.worker.conftest import Bench
from tests.worker.monitor import watched


def test_a_worker_removes_what_is_older_than_its_settings_say(bench: Bench) -> None:
    old, young = (
        bench.kit.db.execute(
            "INSERT INTO background_jobs (kind, pool, status, created_at, finished_at)"
            " VALUES ('note', 'system', 'succeeded', now() - %(age)s::interval, now() - %(age)s::interval)"
            " RETURNING id",
            {"age": age},
        ).fetchall()[0][0]
        for age in ("3 hours", "1 hour")
    )
    worker, seen = watched(bench, WORKER_RETENTION_SUCCEEDED_DAYS="0.1")  # 2.4 hours
    worker.wait_log("1 finished jobs were removed")
    assert seen.value("oomph_jobs_removed_total", status="succeeded") == 1
    assert seen.value("oomph_jobs_removed_total", status="dead") == 0
    assert seen.value("oomph_records_removed_total", table="background_audit") == 0
    assert bench.kit.db.execute("SELECT id FROM background_jobs WHERE id IN (%s, %s)", [old, young]).fetchall() == [
        (young,)
    ]
