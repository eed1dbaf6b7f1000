"""The plans of the hot statements on a large table: each finds its rows by an index, whatever else lies there."""

import json
from datetime import timedelta
from typing import Any

import psycopg

from jobs.sql import statement
from jobs.store import JobStore
from tests.jobs.lab import Connection, add, hire, scalar

OTHERS = 200_000


def fill(db: Connection) -> None:
    """200,000 rows that no claim may pay for: due tomorrow, finished, of other kinds, of a paused kind, blocked."""
    quarter = OTHERS // 5
    db.execute("UPDATE background_kinds SET paused_at = now() WHERE kind = 'letter'")
    db.execute(
        f"""
        INSERT INTO background_jobs (kind, pool, status, run_after, blocked, concurrency_key, dedupe_key, worker_id)
        SELECT 'note', 'system', 'queued', now() + interval '1 day', false, NULL, 'd' || n, NULL
          FROM generate_series(1, {quarter}) AS n
        UNION ALL
        SELECT 'note', 'system', 'succeeded', now() - interval '1 day', false, NULL, NULL, gen_random_uuid()
          FROM generate_series(1, {quarter})
        UNION ALL
        SELECT 'kind ' || n % 20, 'system', 'queued', now() - interval '1 day', false, NULL, NULL, NULL
          FROM generate_series(1, {quarter}) AS n
        UNION ALL
        SELECT 'letter', 'system', 'queued', now() - interval '1 day', false, NULL, NULL, NULL
          FROM generate_series(1, {quarter})
        UNION ALL
        SELECT 'note', 'system', 'queued', now() - interval '1 day', true, 'key ' || n % 1000, NULL, NULL
          FROM generate_series(1, {quarter}) AS n
        """
    )
    db.execute("ANALYZE")


def plan(db: Connection, name: str, **parameters: Any) -> list[dict[str, Any]]:
    """The nodes of the plan of one statement of `jobs/sql`."""
    with db.cursor() as cursor:
        cursor.execute("EXPLAIN (FORMAT JSON) " + statement(name), parameters)
        (row,) = cursor.fetchall()
    tree = json.loads(row[0]) if isinstance(row[0], str) else row[0]
    found: list[dict[str, Any]] = []

    def walk(node: dict[str, Any]) -> None:
        found.append(node)
        for child in node.get("Plans", ()):
            walk(child)

    walk(tree[0]["Plan"])
    return found


async def test_no_hot_statement_walks_the_table(db: Connection, store: JobStore) -> None:
    worker = await hire(store)
    fill(db)
    due = set(add(db, 20))
    ids, claims = [1, 2, 3], [1, 1, 1]
    some = {"worker_id": worker.id, "pool": "system", "kinds": worker.kinds, "slots": 10}
    hot: dict[str, dict[str, Any]] = {
        "claim": some,
        "claim_probe": some,
        "next_due": {"kinds": worker.kinds},
        "complete": {"ids": ids, "claims": claims, "results": [None, None, None]},
        "progress": {"ids": ids, "claims": claims, "fractions": [0.5, 0.5, 0.5], "notes": ["", "", ""]},
        "finish": {
            "id": 1,
            "claim": 1,
            "ending": "retry",
            "refund": False,
            "delay": timedelta(0),
            "error": None,
        },
        "job_by_fence": {"id": 1, "claim": 1},
        "cancels": {"worker_id": worker.id},
        "unknown_claims": {"worker_id": worker.id, "ids": ids, "claims": claims},
        "deregister": {"worker_id": worker.id},
        "mark_lost": {},
        "lost_jobs": {"limit": 100, "passed_over": []},
        "sweep_blocked": {"after": "", "limit": 1000},
        "bury_unknown": {"grace": timedelta(0), "limit": 500},
        "due_schedules": {"names": ["a"]},
        "enqueue": {
            "kind": "note",
            "pool": "system",
            "max_attempts": 5,
            "timeout": timedelta(minutes=5),
            "payloads": ["{}"],
            "priorities": [1],
            "run_afters": [None],
            "delays": [timedelta(0)],
            "organization_ids": [None],
            "dedupe_keys": ["d1"],
            "dedupe_actives": [True],
            "concurrency_keys": [None],
        },
        "cancel_job": {"id": 1, "error": None},
        "retry_job": {"id": 1},
    }
    walking = {
        name: node["Node Type"]
        for name, parameters in hot.items()
        for node in plan(db, name, **parameters)
        if node.get("Relation Name") == "background_jobs" and node["Node Type"] in ("Seq Scan", "Parallel Seq Scan")
    }
    assert walking == {}
    claim = [node for node in plan(db, "claim", **some) if node.get("Alias") == "job" and "Index Name" in node]
    assert "background_jobs_claim" in {node["Index Name"] for node in claim}
    assert "Sort" not in {node["Node Type"] for node in plan(db, "next_due", kinds=["note"])}

    # And what it costs: the pages a claim of ten jobs touches, with 160,000 queued rows around them.
    with psycopg.connect(db.info.dsn, dbname=db.info.dbname) as measuring:
        with measuring.cursor() as cursor:
            cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement("claim"), some)
            (row,) = cursor.fetchall()
        measuring.rollback()
    top = (json.loads(row[0]) if isinstance(row[0], str) else row[0])[0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 2_000
    assert {job.id for job in await worker.claim(slots=20)} == due
    assert scalar(db, "SELECT count(*) FROM background_jobs") == OTHERS + 20
