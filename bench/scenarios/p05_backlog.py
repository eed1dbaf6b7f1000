"""P5: the drain of P1 with a million other rows in the table, each shape of them by itself."""

from dataclasses import dataclass
from typing import Any

import psycopg

from bench.drain import drain
from bench.figures import Row, at_least
from bench.ground import settle
from bench.pictures import lines
from bench.scenarios.p01_drain import RATE, oomph
from bench.session import Session, Subject, figure, take_turns
from bench.workers.oomph_app import NOOP, OTHER, PAUSED
from jobs.migrate import migrate

JOBS, QUICK_JOBS = 10_000, 1_000
ROWS, QUICK_ROWS = 1_000_000, 20_000
CURVE = (10_000, 100_000)  # smaller backlogs, measured once each
CONCURRENCY = 200
WITHOUT = "no backlog"
TEMPLATE = "bench_backlog"

# A worker on paper that lives until tomorrow: it knows all kinds, and holds the running job of the busy key.
NEIGHBOUR = """
INSERT INTO background_workers (id, host, pid, version, pools, kinds, lease_until)
VALUES ('00000000-0000-4000-8000-000000000001', 'elsewhere', 1, 'bench', '{agent,system}', %(kinds)s,
        clock_timestamp() + interval '1 day')
"""
BUSY = """
INSERT INTO background_jobs (kind, pool, payload, status, started_at, attempt, claim, worker_id, concurrency_key)
VALUES (%(noop)s, 'agent', '{"number": 0}', 'running', now(), 1, 1, '00000000-0000-4000-8000-000000000001', 'busy')
"""
PAUSE = (
    "INSERT INTO background_kinds (kind, paused_at, paused_by, pause_reason) VALUES (%(paused)s, now(), 'bench', 'P5')"
)
FILL = """
INSERT INTO background_jobs (kind, pool, payload, status, run_after, started_at, finished_at, attempt, claim,
                             concurrency_key)
SELECT {kind}, {pool}, jsonb_build_object('number', n), {status}, {run_after}, {ran}, {ran}, {claims}, {claims}, {key}
  FROM generate_series(1, %(rows)s) AS n
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """Other rows, all committed before the jobs that are measured. The values are SQL."""

    name: str
    kind: str = "%(noop)s"
    pool: str = "'agent'"
    status: str = "'queued'"
    run_after: str = "now() - interval '1 hour'"
    ran: str = "NULL"
    claims: str = "0"
    key: str = "NULL"
    also: str = "SELECT 1"
    share: float = 1.0  # of the rows that the others have

    def statements(self) -> list[str]:
        values = {name: getattr(self, name) for name in ("kind", "pool", "status", "run_after", "ran", "claims", "key")}
        return [NEIGHBOUR, self.also, FILL.format(**values)]


SHAPES = (
    Shape("finished", status="'succeeded'", ran="now()", claims="1"),
    Shape("due tomorrow", run_after="now() + interval '1 day'"),
    Shape("another pool's", kind="%(other)s", pool="'system'"),
    Shape("of a paused kind", kind="%(paused)s", also=PAUSE),
    Shape("behind a busy key", key="'busy'", also=BUSY, share=0.1),
)


def run(session: Session) -> None:
    full = session.small(ROWS, QUICK_ROWS)
    series: dict[str, list[tuple[float, float]]] = {}
    for shape in SHAPES:
        points = series[shape.name] = []
        for rows in [size for size in CURVE if size < full * shape.share] if not session.quick else []:
            taken = _measure(session, shape, rows, runs=1)
            points.append((rows, figure(taken, _name(shape, rows), RATE).median))
        rows = round(full * shape.share)
        taken = _measure(session, shape, rows, runs=session.runs)
        ours, without = figure(taken, _name(shape, rows), RATE), figure(taken, WITHOUT, RATE)
        points.append((rows, ours.median))
        points.insert(0, (1, without.median))
        session.tell(Row("P5", "drain, jobs/s", ours, without, at_least(0.9)))
        first = figure(taken, _name(shape, rows), "to_first_seconds")
        session.tell(Row("P5", "worker's start to first handler, s", first))
    lines(session.picture("backlog"), "P5: drain beside a backlog", "other rows", "jobs a second", series, log_x=True)


def _measure(session: Session, shape: Shape, rows: int, *, runs: int) -> Any:
    session.say(f"making {rows:,} rows {shape.name}")
    system, count = oomph(CONCURRENCY), session.small(JOBS, QUICK_JOBS)
    session.versions.update(system.versions())
    session.ground.drop(TEMPLATE)
    url = session.ground.template(TEMPLATE)
    migrate(url)
    kinds = {"noop": NOOP.kind, "other": OTHER.kind, "paused": PAUSED.kind}
    with psycopg.connect(url) as db:
        for statement in shape.statements():
            db.execute(statement.encode(), {**kinds, "rows": rows, "kinds": list(kinds.values())})
    settle(url)
    settings = {**system.settings, "rows": str(rows), "shape": shape.name}
    subjects = [
        Subject(WITHOUT, lambda: drain(session.ground, system, count).figures(), system.settings),
        Subject(
            _name(shape, rows), lambda: drain(session.ground, system, count, template=TEMPLATE).figures(), settings
        ),
    ]
    try:
        return take_turns(session, subjects, runs)
    finally:
        session.ground.drop(TEMPLATE)


def _name(shape: Shape, rows: int) -> str:
    return f"oomph, {rows:,} rows {shape.name}"
