"""The plans of the hot statements on a large table: each finds its rows by an index, whatever else lies there."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from jobs import Pool, Task
from jobs.sql import statement
from jobs.store import JobStore
from tests.jobs.lab import TASKS, Connection, Note, add, hire, scalar

OTHERS = 1_000_000
PLANS_SHOWN = {
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_format": "json",
    "client_min_messages": "log",
}


def fill(db: Connection) -> None:
    """A million rows that no claim may pay for: due tomorrow, finished, of other kinds, of a paused kind, blocked."""
    fifth = OTHERS // 5
    db.execute("UPDATE background_kinds SET paused_at = now() WHERE kind = 'letter'")
    db.execute(
        f"""
        INSERT INTO background_jobs (kind, pool, status, run_after, blocked, concurrency_key, dedupe_key, worker_id)
        SELECT 'note', 'system', 'queued', now() + interval '1 day', false, NULL, 'd' || n, NULL
          FROM generate_series(1, {fifth}) AS n
        UNION ALL
        SELECT 'note', 'system', 'succeeded', now() - interval '1 day', false, NULL, NULL, gen_random_uuid()
          FROM generate_series(1, {fifth})
        UNION ALL
        SELECT 'kind ' || n % 20, 'system', 'queued', now() - interval '1 day', false, NULL, NULL, NULL
          FROM generate_series(1, {fifth}) AS n
        UNION ALL
        SELECT 'letter', 'system', 'queued', now() - interval '1 day', false, NULL, NULL, NULL
          FROM generate_series(1, {fifth})
        UNION ALL
        SELECT 'note', 'system', 'queued', now() - interval '1 day', true, 'key ' || n % 1000, NULL, NULL
          FROM generate_series(1, {fifth}) AS n
        """
    )
    db.execute("ANALYZE")


def plan(db: Connection, name: str, /, **parameters: Any) -> list[dict[str, Any]]:
    """The nodes of the plan of one statement of `jobs/sql`."""
    with db.cursor() as cursor:
        cursor.execute("EXPLAIN (FORMAT JSON) " + statement(name), parameters)
        (row,) = cursor.fetchall()
    tree = json.loads(row[0]) if isinstance(row[0], str) else row[0]
    return list(walk(tree[0]["Plan"]))


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The node and all below it."""
    yield node
    for child in node.get("Plans", ()):
        yield from walk(child)


@contextmanager
def plans_inside(db: Connection) -> Iterator[list[dict[str, Any]]]:
    """The plans of the statements that functions execute meanwhile on this connection, with what they cost."""
    plans: list[dict[str, Any]] = []

    def keep(diagnostic: psycopg.errors.Diagnostic) -> None:
        _, found, text = (diagnostic.message_primary or "").partition("plan:\n")
        if found:
            plans.append(json.loads(text))

    db.execute("LOAD 'auto_explain'")
    for name, value in PLANS_SHOWN.items():
        db.execute("SELECT set_config(%s, %s, false)", [name, value])
    db.add_notice_handler(keep)
    try:
        yield plans
    finally:
        db.remove_notice_handler(keep)
        db.execute("RESET ALL")


async def test_what_an_idle_worker_asks_touches_a_few_pages(db: Connection, store: JobStore) -> None:
    worker = await hire(store)
    questions = {"SELECT * FROM background_look(%s)": worker.kinds, "SELECT * FROM background_chores(%s)": worker.id}
    for question, of in questions.items():  # planned, which reads hundreds of pages of the catalogue
        db.execute(question, [of])
    fill(db)
    with plans_inside(db) as plans:
        for question, of in questions.items():
            db.execute(question, [of])
    assert [shown for shown in plans if "JIT" in shown] == []
    nodes = [node for shown in plans for node in walk(shown["Plan"])]
    ours = [node for node in nodes if node.get("Relation Name") == "background_jobs"]
    assert {node["Node Type"] for node in ours} <= {"Index Scan", "Index Only Scan"}
    assert sum(shown["Plan"]["Shared Hit Blocks"] + shown["Plan"]["Shared Read Blocks"] for shown in plans) < 1_000


async def test_a_claim_and_a_bulk_completion_find_their_rows_by_their_indexes(db: Connection, store: JobStore) -> None:
    """Planned on an empty table, as at a first start, then met by 200,000 rows: a connection keeps its plans."""
    worker = await hire(store)
    claim = "SELECT id, claim FROM background_claim(%s, 'system', %s, 10)"
    complete = "SELECT * FROM background_complete(%s, %s, %s)"
    db.execute(claim, [worker.id, worker.kinds])
    db.execute(complete, [[0], [1], [None]])
    fill(db)
    db.execute("INSERT INTO background_jobs (kind, pool) SELECT 'note', 'system' FROM generate_series(1, 20)")
    with plans_inside(db) as plans:
        taken = db.execute(claim, [worker.id, worker.kinds]).fetchall()
        ids, claims = zip(*taken, strict=True)
        refused = db.execute(complete, [list(ids), list(claims), [None] * len(ids)]).fetchall()
    assert len(taken) == 10
    assert refused == []
    assert [shown for shown in plans if "JIT" in shown] == []
    nodes = [node for shown in plans for node in walk(shown["Plan"])]
    ours = [node for node in nodes if node.get("Relation Name") == "background_jobs"]
    assert {node["Node Type"] for node in ours} <= {"Index Scan", "Tid Scan", "ModifyTable"}
    assert {node["Index Name"] for node in ours if "Index Name" in node} == {
        "background_jobs_claim",
        "background_jobs_pkey",
    }
    # Ten jobs among 160,000 queued ones: the pages that it touches.
    pages = sum(shown["Plan"]["Shared Hit Blocks"] + shown["Plan"]["Shared Read Blocks"] for shown in plans)
    assert pages < 1_000


async def test_turns_find_their_rows_by_their_indexes(db: Connection, store: JobStore) -> None:
    """Planned on an empty table, then met by 200,000 rows: a flood, thousands of lines, and what waits or is over."""
    bounded = Task(kind="bounded", payload_type=Note, pool=Pool.SYSTEM, max_per_organization=2)
    worker = await hire(store, tasks=[*TASKS, bounded])
    claim = "SELECT id FROM background_claim(%s, 'system', %s, 10) WHERE id IS NOT NULL"
    for kind in ("note", "bounded"):
        add(db, 20, kind=kind, organization_id="a")
    assert len(db.execute(claim, [worker.id, worker.kinds]).fetchall()) == 10
    db.execute(
        """
        INSERT INTO background_jobs (kind, pool, status, run_after, organization_id, worker_id)
        SELECT kind, 'system', status, now() + due, organization_id, gen_random_uuid()
          FROM generate_series(1, 50000) AS n
         CROSS JOIN LATERAL (VALUES ('note', 'queued', interval '0', 'a'), ('bounded', 'queued', interval '0', 'a'),
                                    ('note', 'queued', interval '1 day', 'z ' || n % 5000),
                                    ('note', 'succeeded', interval '-1 day', 'org ' || n % 5000))
               AS row (kind, status, due, organization_id)
        """
    )
    add(db, 3, organization_id="b")
    db.execute("ANALYZE")
    with plans_inside(db) as plans:
        taken = db.execute(claim, [worker.id, worker.kinds]).fetchall()
    assert len(taken) == 10
    nodes = [node for shown in plans for node in walk(shown["Plan"])]
    ours = [node for node in nodes if node.get("Relation Name") == "background_jobs"]
    assert {node["Node Type"] for node in ours} <= {"Index Scan", "Index Only Scan", "Tid Scan", "ModifyTable"}
    assert {node["Index Name"] for node in ours if "Index Name" in node} == {
        "background_jobs_claim",
        "background_jobs_lines",
        "background_jobs_limited",
    }
    # A walk over a thousand lines is a thousand descents. The claim's own plan counts what is inside of it.
    assert max(shown["Plan"]["Shared Hit Blocks"] + shown["Plan"]["Shared Read Blocks"] for shown in plans) < 6_000


@pytest.mark.parametrize("organization", [None, "a"])
async def test_a_backlog_of_a_key_is_found_by_its_indexes(
    db: Connection, store: JobStore, organization: str | None
) -> None:
    """Planned on an empty table, then met by 200,000 rows, thousands of them of one key whose job runs."""
    worker = await hire(store)
    claim = "SELECT id FROM background_claim(%s, 'system', %s, 1) WHERE id IS NOT NULL"
    for _ in range(3):
        add(db, 2, concurrency_key="k", organization_id=organization)
        db.execute(claim, [worker.id, worker.kinds])
    fill(db)
    add(db, 5_000, concurrency_key="k", organization_id=organization)
    db.execute("ANALYZE")
    with plans_inside(db) as plans:
        assert db.execute(claim, [worker.id, worker.kinds]).fetchall() == []
    parked = "SELECT count(*) FROM background_jobs WHERE blocked AND concurrency_key = 'k'"
    assert scalar(db, parked) == 5 + 1 + 1_000  # before, by the claim itself, and behind that
    (look,) = (shown["Plan"] for shown in plans if "WITH stuck AS" in shown["Query Text"])
    ours = [node for node in walk(look) if node.get("Relation Name") == "background_jobs"]
    assert {node["Node Type"] for node in ours} <= {"Index Scan", "Index Only Scan", "Tid Scan", "ModifyTable"}
    assert {node["Index Name"] for node in ours if "Index Name" in node} == {
        "background_jobs_claim",
        "background_jobs_lines",
        "background_jobs_concurrency",
    }
    assert all("Index Cond" in node for node in ours if "Index Name" in node)


async def test_jobs_that_wait_for_a_missed_kind_cost_a_few_pages_a_second(db: Connection, store: JobStore) -> None:
    """For minutes, each worker asks every second whether they have waited for long enough."""
    worker = await hire(store)
    await store.deregister(worker.id)
    await hire(store, tasks=TASKS[2:])
    others = [f"kind {n}" for n in range(20)]
    db.execute("UPDATE background_workers SET started_at = now() - interval '1 day', kinds = kinds || %s", [others])
    fill(db)
    with plans_inside(db) as plans:
        asked = {"grace": timedelta(0), "missed": timedelta(minutes=5), "limit": 500}
        assert db.execute(statement("bury_unknown"), asked).fetchall() == []
    (shown,) = plans
    nodes = [node for node in walk(shown["Plan"]) if node.get("Relation Name") == "background_jobs"]
    assert {node["Node Type"] for node in nodes} <= {"Index Scan", "Index Only Scan", "ModifyTable", "Tid Scan"}
    assert shown["Plan"]["Shared Hit Blocks"] + shown["Plan"]["Shared Read Blocks"] < 1_000


async def test_no_hot_statement_walks_the_table(db: Connection, store: JobStore) -> None:
    worker = await hire(store)
    fill(db)
    due = set(add(db, 20))
    ids, claims = [1, 2, 3], [1, 1, 1]
    some = {"worker_id": worker.id, "pool": "system", "kinds": worker.kinds, "slots": 10}
    of_task = {
        "kind": "note",
        "pool": "system",
        "max_attempts": 5,
        "timeout": timedelta(minutes=5),
        "trace_context": None,
    }
    one = {
        "payload": "{}",
        "priority": 1,
        "run_after": None,
        "delay": None,
        "organization_id": None,
        "dedupe_key": "d1",
        "dedupe_active": True,
        "concurrency_key": None,
    }
    hot: dict[str, dict[str, Any]] = {
        "claim_probe": some,
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
        "trace_contexts": {"ids": ids},
        "cancels": {"worker_id": worker.id},
        "unknown_claims": {"worker_id": worker.id, "ids": ids, "claims": claims},
        "deregister": {"worker_id": worker.id},
        "mark_lost": {},
        "lost_jobs": {"limit": 100, "passed_over": []},
        "sweep_blocked": {"after": "", "limit": 1000},
        "bury_unknown": {"grace": timedelta(0), "missed": timedelta(minutes=5), "limit": 500},
        "take_schedule": {"name": "a"},
        "enqueue": {name: [value] for name, value in one.items()} | of_task | {"payload": "[{}]"},
        "enqueue_one": one | of_task,
        "enqueue_deduped": one | of_task,
    }
    with plans_inside(db) as plans:
        db.execute(statement("queue_sample"), {"kinds": 200, "limit": 10_000})
    sampled = [node for shown in plans for node in walk(shown["Plan"])]
    ours = [node for node in sampled if node.get("Relation Name") == "background_jobs"]
    assert {node["Index Name"] for node in ours} == {"background_jobs_claim", "background_jobs_blocked"}
    with db.transaction():
        db.execute(statement("by_index"), {"milliseconds": 1_000})
        week = {"succeeded": timedelta(days=7), "dead": timedelta(days=30), "cancelled": timedelta(days=30)}
        removed = plan(db, "remove_jobs", after=0, span=2_000, limit=2_000, **week)
        trimmed = plan(db, "trim_attempts", after=0, to=2_000, keep=1_000, limit=2_000)
    ours = [node for node in (*removed, *trimmed) if node.get("Relation Name") == "background_jobs"]
    assert {node["Index Name"] for node in ours if "Index Name" in node} <= {
        "background_jobs_pkey",
        "background_jobs_occurrence",
    }
    walking = {
        name: node["Node Type"]
        for name, parameters in hot.items()
        for node in plan(db, name, **parameters)
        if node.get("Relation Name") == "background_jobs" and node["Node Type"] in ("Seq Scan", "Parallel Seq Scan")
    }
    assert walking == {}
    assert {job.id for job in await worker.claim(slots=20)} == due
    assert scalar(db, "SELECT count(*) FROM background_jobs") == OTHERS + 20
