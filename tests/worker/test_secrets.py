"""Whatever a job does with its secrets, nobody finds them anywhere but in its payload."""

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pydantic import Secret, SecretStr

from jobs import Pool, enqueue, reports
from jobs.outcome import AttemptReport, Failed, JobError, ProcessFacts
from jobs.redaction import MASK
from jobs.store import JobStore
from pools.execution import Execution, Report
from pools.loop import LoopPool
from supervisor.attempts import Attempts
from supervisor.outcomes import OutcomeWriter
from supervisor.testing import Kit, wait_for
from tests.jobs.lab import hire
from tests.worker.secret_app import TASKS, Account, Login, app

# Long enough for pydantic to cut it, and each with what JSON, Python and a log write otherwise.
TOKEN = "tok-" + "".join(f"{n:03}\u00e9" for n in range(100, 130))
PASSWORD = "pass\"word'with\\back\nand a second line"
PLAIN = "open\tsesame"
PIN = 48151623
PIECE = 10  # characters: what is shorter of a secret tells it to nobody

ANYWHERE = ["fail", "fail in a chain", "return", "return what is no result", "exit", "snooze", "wait"]
DO = {
    Pool.AGENT: [*ANYWHERE, "leave a task behind", "leave a thread behind"],
    Pool.SYSTEM: ANYWHERE,
    Pool.INGEST: [*ANYWHERE, "crash", "eat", "flood"],
}


def pieces() -> set[str]:
    found = {str(PIN), "second line", "sesame"}
    for secret in (TOKEN, PASSWORD):
        found |= {secret[start : start + PIECE] for start in range(len(secret) - PIECE + 1)}
    return found


def told(text: str) -> set[str]:
    """Pieces of secrets in a text, also where it is JSON or a log's one line."""
    readings = [text, text.replace("\\\\", "\\"), text.replace('\\"', '"').replace("\\'", "'")]
    return {piece for piece in pieces() for reading in readings if piece in reading}


def everything(db: psycopg.Connection[Any]) -> str:
    """All that the database holds, but for payloads."""
    tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    rows = []
    for (table,) in tables:
        query = sql.SQL("SELECT (to_jsonb(t) - 'payload')::text FROM {} AS t").format(sql.Identifier(table))
        rows += [row[0] for row in db.execute(query).fetchall()]
    return "\n".join(rows)


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_secret_leaves_its_payload_however_its_job_ends(oomph_kit: Kit, form: str) -> None:
    db = oomph_kit.db
    worker = oomph_kit.start("tests.worker.secret_app:app", WORKER_LOG_FORMAT=form)
    account = Account(password=SecretStr(PASSWORD))
    jobs: dict[int, tuple[Pool, str]] = {}
    for pool, actions in DO.items():
        for do in actions:
            login = Login(do=do, token=SecretStr(TOKEN), account=account, pin=Secret(PIN), plain=PLAIN)
            jobs[oomph_kit.enqueue(TASKS[pool], login)] = pool, do
        # Written by SQL, so that it fits the declaration nowhere.
        row = db.execute(
            "SELECT background_enqueue(%s, jsonb_build_object('do', 1, 'Account', %s::text, 'token', ARRAY[%s::text]))",
            [TASKS[pool].kind, PASSWORD, TOKEN],
        ).fetchone()
        assert row is not None
        jobs[row[0]] = pool, "invalid"

    def ended() -> dict[tuple[Pool, str], str] | None:
        rows = db.execute("SELECT id, status, error->>'type' FROM background_jobs WHERE id = ANY(%s)", [[*jobs]])
        found = {jobs[job_id]: (status, error) for job_id, status, error in rows}
        over = all(status in ("succeeded", "dead") for status, _ in found.values())
        return {job: error or status for job, (status, error) in found.items()} if over else None

    endings = wait_for(ended, "the end of every job", 60)
    worker.wait_log("disowned with")
    worker.wait_log("Task exception was never retrieved")
    worker.wait_log(r"the thread .* failed")
    assert endings[Pool.AGENT, "wait"] == endings[Pool.INGEST, "wait"] == "TimedOut"
    assert endings[Pool.INGEST, "crash"] == "SIGSEGV"
    assert endings[Pool.INGEST, "eat"] == "MemoryError"
    assert endings[Pool.INGEST, "flood"] == endings[Pool.INGEST, "exit"] == "Exited"
    for pool in Pool:
        assert endings[pool, "return"] == endings[pool, "snooze"] == "succeeded"
        assert endings[pool, "fail"] == "RuntimeError"
        assert endings[pool, "fail in a chain"] == "LookupError"
        assert endings[pool, "return what is no result"] == "InvalidResult"
        assert endings[pool, "invalid"] == "InvalidPayload"

    log, database = worker.text(), everything(db)
    assert told(log) == set()
    assert told(database) == set()
    assert log.count(MASK) > len(jobs)
    assert database.count(MASK) > len(jobs)
    shown = [reports.show_job(db, job_id) for job_id in jobs]
    assert told(repr(shown)) == set()
    assert all(report.job.payload["token"] == MASK for report in shown)
    assert len(reports.list_notices(db)) > len(jobs) / 2, "a dead job of an important kind is told of"


async def test_what_a_pool_itself_says_is_looked_at_too(db: psycopg.Connection[Any], store: JobStore) -> None:
    class Tells(LoopPool):
        def begin(self, execution: Execution, report: Report) -> None:
            facts = ProcessFacts(output_tail=execution.job.payload)
            outcome = Failed(JobError(PLAIN, execution.job.payload, execution.job.payload))
            report(AttemptReport(outcome, {"why": execution.job.payload}, facts))

    worker = await hire(store, tasks=[TASKS[Pool.SYSTEM]])
    login = Login(
        do="", token=SecretStr(TOKEN), account=Account(password=SecretStr(PASSWORD)), pin=Secret(PIN), plain=PLAIN
    )
    enqueue(db, TASKS[Pool.SYSTEM], login)
    job = await worker.claim_one()
    outcomes = OutcomeWriter(store)
    attempts = Attempts(app(), store, outcomes, {Pool.SYSTEM: Tells()}, {Pool.SYSTEM: 1}, lambda pool, gone: None)
    attempts.start(Pool.SYSTEM, [job], lambda: True)
    writing = asyncio.create_task(outcomes.run())
    assert await attempts.wait_ended(10)
    writing.cancel()
    assert told(everything(db)) == set()
    assert db.execute(
        "SELECT count(*) FROM background_attempts WHERE output_tail LIKE %s", [f"%{MASK}%"]
    ).fetchone() == (1,)
