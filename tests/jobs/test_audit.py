"""The audit by a filter: of one job or kind, by somebody, of one sort; each found by an index."""

from collections.abc import Callable
from typing import Any

import pytest

from jobs import control, reports
from jobs.bulk import retry_matching
from jobs.finding import JobFilter
from jobs.reports import AuditFilter, AuditRow
from tests.jobs.lab import Connection, add, scalar
from tests.jobs.test_plans import plans_inside, walk

ENTRIES = 30_000
MAX_PAGES = 400  # of 8 KiB: what 50 entries that lie apart take


def deeds(db: Connection, **wanted: Any) -> list[tuple[str, str, str]]:
    rows: list[AuditRow] = reports.list_audit(db, AuditFilter(**wanted))
    return [(row.actor, row.action, row.target) for row in rows]


def test_a_job_has_what_was_done_to_it_alone_and_with_others(db: Connection) -> None:
    dead, other = add(db, status="dead"), add(db, status="dead", kind="letter")
    retry_matching(db, JobFilter(status="dead", kind="note"), actor="ana")
    control.cancel(db, dead[0], actor="bo")
    control.retry(db, other[0], actor="ana")
    assert deeds(db, job_id=dead[0]) == [("bo", "cancel", f"job {dead[0]}"), ("ana", "retry", "1 jobs")]
    assert deeds(db, job_id=dead[0], actor="ana") == [("ana", "retry", "1 jobs")]
    assert deeds(db, job_id=dead[0], action="pause") == []
    assert [row.action for row in reports.show_job(db, dead[0]).by_hand] == ["cancel", "retry"]
    assert reports.show_job(db, add(db)[0]).by_hand == []


def test_a_job_that_was_refused_among_others_has_no_entry(db: Connection) -> None:
    held = add(db, status="dead", dedupe_key="d")
    add(db, dedupe_key="d")
    retry_matching(db, JobFilter(status="dead"), actor="ana")
    assert deeds(db, job_id=held[0]) == []


def test_a_job_that_somebody_made_by_running_a_schedule_says_so(db: Connection) -> None:
    db.execute(
        "INSERT INTO background_kinds (kind, pool, priority, max_attempts, timeout) "
        "VALUES ('digest', 'system', 1, 5, '1 minute')"
    )
    db.execute(
        "INSERT INTO background_schedules (name, app, kind, every, misfire, overlap, grace, next_occurrence) "
        "VALUES ('nightly', 'app', 'digest', '1 day', 'latest', 'allow', '1 hour', now() + interval '1 hour')"
    )
    job_id = control.run_schedule_now(db, "nightly", actor="ana")
    assert deeds(db, job_id=job_id) == deeds(db, target="schedule nightly") == [("ana", "run now", "schedule nightly")]


def test_filters_are_exact_and_combine(db: Connection) -> None:
    long = "k" * 5_000  # longer than an index entry may be
    for actor, target in (("ana", "parse"), ("bo", "parse"), ("ana", "parser"), ("ana", long), ("ana", long + "!")):
        control.record(db, "drain", target, actor=actor)
    control.pause(db, "parse", actor="ana")
    assert deeds(db, target="parse") == [("ana", "pause", "parse"), ("bo", "drain", "parse"), ("ana", "drain", "parse")]
    assert deeds(db, target="parse", action="drain", actor="bo") == [("bo", "drain", "parse")]
    assert deeds(db, target=long) == [("ana", "drain", long)]
    assert len(deeds(db, actor="ana")) == 5
    assert len(deeds(db, action="drain")) == 5
    assert deeds(db, actor="an") == []


def test_pages_of_a_filter_follow_each_other_by_id(db: Connection) -> None:
    for number in range(5):
        control.record(db, "drain", "parse", actor="ana", reason=str(number))
        control.record(db, "drain", "parser", actor="ana")
    wanted, told, before = AuditFilter(target="parse"), [], None
    while rows := reports.list_audit(db, wanted, before=before, limit=2):
        told += [row.reason for row in rows]
        before = rows[-1].id
    assert told == ["4", "3", "2", "1", "0"]


@pytest.mark.parametrize("detail", ["[1]", '"ids"', '{"ids": 7, "job": [7]}', '{"ids": "7"}', "null"])
def test_what_somebody_wrote_by_hand_is_in_nobodys_way(detail: str, db: Connection) -> None:
    db.execute(
        "INSERT INTO background_audit (actor, action, target, detail) VALUES ('x', 'y', 'z', %s::jsonb)", [detail]
    )
    assert deeds(db, job_id=7) == []
    assert deeds(db, target="z") == [("x", "y", "z")]


def questions(db: Connection) -> dict[str, Callable[[], Any]]:
    asked = {
        "all": AuditFilter(),
        "a job": AuditFilter(job_id=77),
        "a job of many": AuditFilter(job_id=1_000_078),
        "no job": AuditFilter(job_id=9),
        "a kind": AuditFilter(target="kind 7"),
        "nothing": AuditFilter(target="no such kind"),
        "somebody": AuditFilter(actor="cleo"),
        "nobody": AuditFilter(actor="no such actor"),
        "a rare action": AuditFilter(action="pause"),
        "no action": AuditFilter(action="no such action"),
        "a rare action by a busy person": AuditFilter(actor="ana", action="pause"),
        "a common action by somebody": AuditFilter(actor="cleo", action="retry"),
    }
    return {name: lambda wanted=wanted: reports.list_audit(db, wanted) for name, wanted in asked.items()}  # type: ignore[misc]


@pytest.mark.parametrize("analyzed", [1_000, ENTRIES])
def test_every_filter_finds_its_entries_by_an_index(analyzed: int, db: Connection) -> None:
    """Also while the statistics are of a smaller table: people fill it."""
    db.execute("ALTER TABLE background_audit SET (autovacuum_enabled = off)")
    try:
        for first, last in ((1, analyzed), (analyzed + 1, ENTRIES)):
            db.execute(
                """
                INSERT INTO background_audit (actor, action, target, detail)
                SELECT CASE WHEN n = 70 THEN 'cleo' ELSE 'ana' END,
                       CASE n WHEN 71 THEN 'pause' WHEN 72 THEN 'pause' ELSE 'retry' END,
                       CASE WHEN n %% 3 = 0 THEN '1 jobs' WHEN n < 50 THEN 'kind ' || n ELSE 'job ' || n END,
                       CASE WHEN n %% 3 = 0 THEN jsonb_build_object('ids', jsonb_build_array(1000000 + n, 1000001 + n))
                            ELSE '{"was": "dead"}' END
                  FROM generate_series(%s::integer, %s::integer) AS n
                """,
                [first, last],
            )
            if last == analyzed:
                db.execute("ANALYZE background_audit")
        for name, ask in questions(db).items():
            found = ask()
            with plans_inside(db) as plans:
                ask()
            nodes = [node for shown in plans for node in walk(shown["Plan"])]
            ways = {node["Node Type"] for node in nodes if node.get("Relation Name") == "background_audit"}
            assert ways <= {"Index Scan", "Index Only Scan", "Bitmap Heap Scan"}, name
            pages = sum(shown["Plan"]["Shared Hit Blocks"] + shown["Plan"]["Shared Read Blocks"] for shown in plans)
            assert pages < MAX_PAGES, name
            assert bool(found) == (not name.startswith("no")), name
        assert scalar(db, "SELECT count(*) FROM background_audit") == ENTRIES
    finally:
        db.execute("ALTER TABLE background_audit RESET (autovacuum_enabled)")
