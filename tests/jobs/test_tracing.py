"""The enqueuer's span is in the job, whatever connection the service holds, and nothing is where there is no span."""

import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from jobs.database import Database
from jobs.enqueue import Job, enqueue, enqueue_many
from jobs.migrate import migrations
from jobs.store import JobStore
from jobs.tracing import MAX_TRACE_CONTEXT_CHARS, context_of, current_trace, trace_ids
from tests.jobs.callers import CALLERS, Held, settle
from tests.jobs.lab import NOTE, Note, hire, scalar

TRACER = TracerProvider(shutdown_on_exit=False).get_tracer("a service")
VALID = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(
    params=["psycopg_connection", "psycopg_async_cursor", "sqlalchemy_async_session_asyncpg", "asyncpg_connection"]
)
async def held(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Held]:
    async with CALLERS[request.param](url) as opened:
        yield opened


def carried(span: trace.Span) -> str:
    told = span.get_span_context()
    return f"00-{told.trace_id:032x}-{told.span_id:016x}-{told.trace_flags:02x}"


async def test_a_job_carries_the_span_that_enqueued_it(held: Held, db: Connection) -> None:
    with TRACER.start_as_current_span("request") as span:
        one = await settle(enqueue(held.db, NOTE, Note()))
        many = await settle(enqueue_many(held.db, NOTE, [Note(), Job(payload=Note(), dedupe_key="k")]))
    without = await settle(enqueue(held.db, NOTE, Note()))
    await settle(held.commit())
    found = dict(db.execute("SELECT id, trace_context FROM background_jobs").fetchall())
    assert found == {**dict.fromkeys([one, *many], carried(span)), without: None}


async def test_the_function_takes_it_from_any_language_and_refuses_nothing(url: str, db: Connection) -> None:
    query = "SELECT background_enqueue('note', '{}', 'system', trace_context => %s)"
    kept = scalar(db, query, VALID)
    assert scalar(db, "SELECT trace_context FROM background_jobs WHERE id = %s", kept) == VALID
    clipped = scalar(db, query, "x" * 100_000)
    assert scalar(db, "SELECT length(trace_context) FROM background_jobs WHERE id = %s", clipped) == 700


def test_what_a_vendor_adds_travels_along_unless_it_is_too_long() -> None:
    for value, kept in (("v", True), ("v" * 250, True)):
        state = TraceState([("vendor", value)])
        told = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1), trace_state=state)
        text = current_trace(trace.set_span_in_context(NonRecordingSpan(told), Context()))
        assert text is not None
        assert text.endswith(f" vendor={value}") == kept
        again = trace.get_current_span(context_of(text)).get_span_context()
        assert (again.trace_id, again.span_id, again.trace_state) == (1, 2, state)
    long = TraceState([(f"vendor{number}", "v" * 250) for number in range(5)])
    told = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1), trace_state=long)
    text = current_trace(trace.set_span_in_context(NonRecordingSpan(told), Context()))
    assert text is not None
    assert len(text) == 55 < MAX_TRACE_CONTEXT_CHARS


@pytest.mark.parametrize("text", [None, "", "nonsense", "00-0-0-00", VALID[:-4] + "zz", "\x1b[2J\n", VALID.upper()])
def test_what_is_not_valid_is_no_trace(text: str | None) -> None:
    assert not trace.get_current_span(context_of(text)).get_span_context().is_valid


def test_a_log_names_what_is_carried() -> None:
    assert trace_ids(VALID) == {"trace_id": VALID[3:35], "span_id": VALID[36:52]}
    assert trace_ids(f"{VALID} vendor=1") == trace_ids(VALID)
    assert trace_ids(None) == trace_ids("nonsense") == {}


async def test_a_traced_worker_gets_it_with_its_claim_and_another_asks_nothing(
    url: str, db: Connection, database: Database
) -> None:
    with TRACER.start_as_current_span("request") as span:
        traced = enqueue(db, NOTE, Note())
    plain = enqueue(db, NOTE, Note())
    for is_traced, expected in ((False, None), (True, carried(span))):
        db.execute("UPDATE background_jobs SET status = 'queued', worker_id = NULL")
        worker = await hire(JobStore(database, retry_delay=15, pause_after=5, traced=is_traced))
        claimed = {job.id: job.trace_context for job in await worker.claim(slots=5)}
        assert claimed == {traced: expected, plain: None}


def test_enqueueing_imports_nothing_of_it(url: str) -> None:
    script = f"""
import sys, psycopg
from jobs import Payload, Pool, Task, enqueue
with psycopg.connect({url!r}) as connection:
    assert enqueue(connection, Task(kind="note", payload_type=Payload, pool=Pool.SYSTEM), Payload()) is not None
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_the_column_comes_without_rewriting_the_table(url: str) -> None:
    (adding,) = (
        step.sql for migration in migrations() if migration.name.endswith("trace_context") for step in migration.steps
    )
    column = next(command for command in adding.split(";") if "ADD COLUMN" in command)
    with psycopg.connect(url) as db:
        db.execute("INSERT INTO background_jobs (kind, pool) VALUES ('note', 'system')")
        db.execute("ALTER TABLE background_jobs DROP COLUMN trace_context")
        file = scalar(db, "SELECT pg_relation_filenode('background_jobs')")
        db.execute(column)
        assert scalar(db, "SELECT pg_relation_filenode('background_jobs')") == file
        db.rollback()
        named = "SELECT count(*) FROM pg_proc WHERE proname = 'background_enqueue'"
        assert scalar(db, named) == 1, "two of them, and a call by name fits both"
