"""A database as an operator meets it on a busy day: for the pictures of the page, and for its tests in a browser.

Everything in it is made up, and the same each time but for the moments, which are counted back from now.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from scripts.showroom_activity import LIMIT_MB, POOLS, SECONDS, add_activity

Connection = psycopg.Connection[tuple[Any, ...]]

HOSTS = ("ingest-1.example", "ingest-2.example", "agents-1.example")
LOST_HOST = "ingest-3.example"
CARD_NUMBER = "4111 1111 1111 1111"
PAUSE_REASON = (
    "5 kills in a row: job 376 on ingest-2.example: oom_killed (certain: the job's own OOM counter moved (job 0 -> 1)"
    "); job 371 on ingest-1.example: oom_killed (certain: the job's own OOM counter moved (job 0 -> 1)); job 365 on "
    "ingest-2.example: memory_exceeded (certain: out of memory; peak 1019 MB of 1024 MB)"
)
STACK = """Traceback (most recent call last):
  File "/srv/app/background/tables.py", line 88, in extract_tables
    frame = pandas.read_excel(book, sheet_name=None, header=None)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/app/background/sheets.py", line 41, in read_sheets
    cells = numpy.empty((rows, columns), dtype=object)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
MemoryError: Unable to allocate 1.9 GiB for an array with shape (1048576, 244) and data type object
"""
OUTPUT = """INFO tables: opening price-list-2026.xlsx, 48.2 MB
INFO tables: 3 sheets, the largest of 1,048,576 x 244 cells
WARNING tables: the sheet "archive" has no header; the first row is taken for one
"""


@dataclass(frozen=True, slots=True)
class Showroom:
    """Jobs worth looking at, by id."""

    dead: int  # of `extract-tables`, with five attempts
    running: int  # of `ingest-document`, with progress
    queued: int  # of `ask-agent`
    blocked: int  # behind the running one's concurrency key
    secret: int  # of `charge-card`, dead


def furnish(db: Connection) -> Showroom:
    """Fill a fresh, migrated database. Commits what `db` has open."""
    chance = random.Random(7)
    with db.transaction():
        now = db.execute("SELECT clock_timestamp()").fetchall()[0][0]
        workers = _workers(db, now)
        _kinds(db, now)
        # In the order in which they were created, as their numbers are.
        _finished(db, now, chance, range(160, 400))
        dead = _dead(db, now, workers)
        _finished(db, now, chance, range(91, 160))
        secret = _declined(db, now, workers)
        _finished(db, now, chance, range(91))
        queued = _queued(db, now, chance)
        running = _running(db, now, workers)
        blocked = _insert(
            db, "background_jobs", kind="ingest-document", pool="ingest", blocked=True, organization_id="acme",
            concurrency_key="collection:acme", payload=Jsonb({"document_id": str(UUID(int=77))}),
            created_at=now - timedelta(seconds=9), run_after=now - timedelta(seconds=9),
        )  # fmt: skip
        _records(db, now, secret)
        add_activity(db, now, chance)
    with db.cursor() as cursor:
        cursor.execute("ANALYZE")
    return Showroom(dead=dead, running=running, queued=queued, blocked=blocked, secret=secret)


def _insert(db: Connection, table: str, **columns: Any) -> int:
    query = sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING {}").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(map(sql.Placeholder, columns)),
        sql.Identifier("id") if table == "background_jobs" else sql.SQL("0"),
    )
    return int(db.execute(query, columns).fetchall()[0][0])


def _workers(db: Connection, now: datetime) -> list[UUID]:
    ids = [UUID(int=(0x6F6F6D70 << 96) + number) for number in range(len(HOSTS))]
    slots = {
        "ingest": Jsonb({"ingest": {"used": 3, "total": 4}, "system": {"used": 1, "total": 10}}),
        "agents": Jsonb({"agent": {"used": 12, "total": 100}, "system": {"used": 0, "total": 10}}),
    }
    for number, (worker, host) in enumerate(zip(ids, HOSTS, strict=True)):
        what = host.partition("-")[0]
        _insert(
            db, "background_workers", id=worker, host=host, pid=412 + number, version="0.1.0",
            pools=["ingest", "system"] if what == "ingest" else ["agent", "system"], kinds=sorted(POOLS),
            started_at=now - timedelta(hours=5 + number), lease_until=now + timedelta(hours=2),
        )  # fmt: skip
        children: dict[str, Any] = {}
        if what == "ingest":
            children = {"children": 3, "children_mb": 1220.5, "largest_child_mb": 811.0, "template_up": True}
        _insert(
            db, "background_worker_states", worker_id=worker, at=now, memory_mb=88.4 + 9 * number, slots=slots[what],
            **children,
        )  # fmt: skip
    _insert(
        db, "background_workers", id=UUID(int=(0x6F6F6D70 << 96) + 99), host=LOST_HOST, pid=97, version="0.1.0",
        pools=["ingest"], kinds=sorted(POOLS), started_at=now - timedelta(hours=9),
        lease_until=now - timedelta(hours=2), lost_at=now - timedelta(hours=2),
    )  # fmt: skip
    return ids


def _kinds(db: Connection, now: datetime) -> None:
    for kind, pool in POOLS.items():
        _insert(
            db, "background_kinds", kind=kind, pool=pool, priority=0 if kind == "ask-agent" else 1, max_attempts=5,
            timeout=timedelta(minutes=10 if pool == "ingest" else 5), important=kind == "charge-card",
            secret_paths=["card.number", "card.security_code"] if kind == "charge-card" else [],
        )  # fmt: skip
    db.execute(
        """UPDATE background_kinds SET kill_streak = 5, paused_at = %s, paused_by = 'oomph', pause_reason = %s
            WHERE kind = 'extract-tables'""",
        [now - timedelta(minutes=23), PAUSE_REASON],
    )


def _finished(db: Connection, now: datetime, chance: random.Random, ago: range) -> None:
    """Jobs that ended well, each created `ago` times 27 seconds before now."""
    for number in reversed(ago):
        kind = chance.choice(sorted(POOLS))
        created = now - timedelta(seconds=27 * number + 5)
        ran = timedelta(seconds=chance.expovariate(1 / SECONDS.get(kind, 0.4)))
        is_cancelled = number % 97 == 96
        _insert(
            db, "background_jobs", kind=kind, pool=POOLS[kind], status="cancelled" if is_cancelled else "succeeded",
            attempt=1, claim=1, organization_id=chance.choice(["acme", "globex", "initech"]), created_at=created,
            run_after=created, started_at=created + timedelta(seconds=1),
            finished_at=min(now, created + timedelta(seconds=1) + ran), payload=Jsonb({"id": number}),
        )  # fmt: skip


def _dead(db: Connection, now: datetime, workers: list[UUID]) -> int:
    error = {"type": "MemoryError", "message": STACK.splitlines()[-1].partition(": ")[2], "frames": STACK}
    first = now - timedelta(minutes=72)
    job_id = _insert(
        db, "background_jobs", kind="extract-tables", pool="ingest", status="dead", attempt=5, claim=5,
        organization_id="acme", payload=Jsonb({"document_id": str(UUID(int=5)), "sheets": ["prices", "archive"]}),
        error=Jsonb(error), created_at=first, run_after=first, started_at=now - timedelta(minutes=27),
        finished_at=now - timedelta(minutes=25), concurrency_key="collection:initech",
    )  # fmt: skip
    verdicts = ("failed", "oom_killed", "oom_killed", "timed_out", "memory_exceeded")
    for claim, verdict in enumerate(verdicts, start=1):
        started = first + timedelta(minutes=9 * claim)
        evidence: Mapping[str, Any] = {"certainty": "certain", "why": "the handler raised"}
        told: dict[str, Any] = {"error": Jsonb(error), "exit_code": 0}
        if verdict == "oom_killed":
            why = "killed by SIGKILL that the supervisor did not send; the job's own OOM counter moved (job 0 -> 1)"
            evidence = {"certainty": "certain", "why": why, "oom_kill_job": "0 -> 1", "cgroup_peak_mb": 1061.2}
            told = {"signal": "SIGKILL", "error": Jsonb({"type": "OomKilled", "message": why, "frames": ""})}
        elif verdict == "timed_out":
            evidence = {"certainty": "certain", "why": "stopped at its deadline of 600 s", "intent": "deadline"}
        _insert(
            db, "background_attempts", job_id=job_id, claim=claim, attempt=claim, kind="extract-tables",
            worker_id=workers[claim % 2], host=HOSTS[claim % 2], pid=40_112 + claim, started_at=started,
            finished_at=started + timedelta(seconds=600 if verdict == "timed_out" else 95 + 7 * claim), verdict=verdict,
            evidence=Jsonb(evidence), charged=True, is_kill=verdict in ("oom_killed", "memory_exceeded"),
            peak_memory_mb=640.0 if verdict == "timed_out" else 1003.0 + claim, memory_limit_mb=LIMIT_MB,
            cpu_seconds=71.5, output_tail=OUTPUT, **told,
        )  # fmt: skip
    return job_id


def _running(db: Connection, now: datetime, workers: list[UUID]) -> int:
    first = 0
    for number, (kind, progress, note) in enumerate(
        [
            ("ingest-document", 0.62, "embedding, 310 of 500 chunks"),
            ("ingest-document", 0.1, "parsing page 9 of 88"),
            ("ask-agent", 0.5, "thinking"),
            ("summarize-thread", None, None),
        ]
    ):
        since = now - timedelta(seconds=14 + 30 * number)
        job_id = _insert(
            db, "background_jobs", kind=kind, pool=POOLS[kind], status="running", attempt=1, claim=1,
            worker_id=workers[0 if number < 2 else 2], organization_id="acme", progress=progress, progress_note=note,
            concurrency_key="collection:acme" if number == 0 else None, created_at=since, run_after=since,
            started_at=since + timedelta(seconds=1), payload=Jsonb({"document_id": str(UUID(int=60 + number))}),
        )  # fmt: skip
        first = first or job_id
    return first


def _queued(db: Connection, now: datetime, chance: random.Random) -> int:
    last = 0
    for number in range(38):
        kind = "extract-tables" if number < 13 else "ask-agent"
        created = now - timedelta(seconds=chance.uniform(0, 40) + (900 - 60 * number if number < 13 else 12))
        later = timedelta(minutes=30) if number % 10 == 9 else timedelta(0)
        last = _insert(
            db, "background_jobs", kind=kind, pool=POOLS[kind], priority=0 if kind == "ask-agent" else 1,
            organization_id="globex", payload=Jsonb({"question": "Which invoices of May are not paid?"}),
            created_at=created, run_after=created + later, dedupe_key=f"question-{number}",
        )  # fmt: skip
    return last


def _declined(db: Connection, now: datetime, workers: list[UUID]) -> int:
    error = {"type": "payments.Declined", "message": "the bank declined **********: insufficient funds", "frames": ""}
    at = now - timedelta(minutes=41)
    card = {"number": CARD_NUMBER, "security_code": "737", "holder": "Ada Lovelace"}
    job_id = _insert(
        db, "background_jobs", kind="charge-card", pool="system", status="dead", attempt=1, claim=1, max_attempts=1,
        organization_id="initech", payload=Jsonb({"amount": "120.00 EUR", "card": card}), error=Jsonb(error),
        created_at=at, run_after=at, started_at=at, finished_at=at + timedelta(seconds=2),
    )  # fmt: skip
    _insert(
        db, "background_attempts", job_id=job_id, claim=1, attempt=1, kind="charge-card", worker_id=workers[0],
        host=HOSTS[0], started_at=at, finished_at=at + timedelta(seconds=2), verdict="failed",
        evidence=Jsonb({"certainty": "certain", "why": "the handler raised"}), charged=True, is_kill=False,
        error=Jsonb(error),
    )  # fmt: skip
    return job_id


def _records(db: Connection, now: datetime, declined: int) -> None:
    for name, kind, every, last in [
        ("send-digest", "send-digest", timedelta(days=1), timedelta(hours=7)),
        ("watch-folder", "ingest-document", timedelta(minutes=1), timedelta(seconds=21)),
    ]:
        _insert(
            db, "background_schedules", name=name, app="app.background:production", kind=kind, every=every,
            misfire="latest", overlap="skip", grace=timedelta(minutes=1), next_occurrence=now - last + every,
            last_occurrence=now - last,
        )  # fmt: skip
    for minutes, actor, action, target, reason in [
        (190, "grace", "retry", "job 12", "the mail server is back"),
        (95, "ada", "cancel", "job 97", "the customer withdrew the order"),
        (23, "oomph", "pause", "extract-tables", PAUSE_REASON),
    ]:
        at = now - timedelta(minutes=minutes)
        _insert(db, "background_audit", at=at, actor=actor, action=action, target=target, reason=reason)
    for minutes, severity, subject, body in [
        (
            120,
            "warning",
            f"worker on {LOST_HOST} is lost",
            "Its lease ran out while it ran 2 jobs; others have them now.",
        ),
        (
            41,
            "critical",
            f"job {declined} of the important kind charge-card is dead",
            "Attempts: 1 of 1.\npayments.Declined",
        ),
        (23, "critical", "extract-tables is paused", PAUSE_REASON),
    ]:
        at = now - timedelta(minutes=minutes)
        _insert(
            db, "background_notices", at=at, severity=severity, subject=subject, body=body,
            read_at=at + timedelta(minutes=5) if severity == "warning" else None,
        )  # fmt: skip
