"""A worker and the commands behind a pooler in transaction mode: a real pgbouncer, however it lends its sessions."""

import re
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typer.testing import CliRunner

from jobs.claim import Wanted
from jobs.control import cancel, pause, resume
from jobs.database import Database
from supervisor.commands.application import cli
from supervisor.testing.waiting import wait_for
from tests.poolers.conftest import ROTATIONS, Pooled
from tests.poolers.sessions import left_behind
from tests.worker.app import AGENT, HURRIED_AGENT, INGEST, SYSTEM
from tests.worker.conftest import Bench

TROUBLE = re.compile(r"ERROR|CRITICAL|prepared statement .* (?:exist|not)|not available|unavailable")


def use_everything(bench: Bench) -> None:
    """Every way in which an attempt begins and ends, and what operators do meanwhile."""
    bench.db.execute("CREATE TABLE effects (job_id bigint)")
    succeed = [bench.put(task, "wait", 0.05) for task in (AGENT, SYSTEM, INGEST) for _ in range(4)]
    succeed += [bench.put(AGENT, "fail once"), bench.put(AGENT, "snooze"), bench.put(AGENT, "complete in")]
    succeed += [bench.put(AGENT, "progress", 1.5), bench.put(INGEST, "be killed once")]
    succeed += [bench.put(AGENT, concurrency_key="one") for _ in range(4)]
    die = [bench.put(AGENT, "give up"), bench.put(HURRIED_AGENT, "wait", 30)]
    running = bench.put(AGENT, "wait", 60)
    bench.wait(running, "running")
    cancel(bench.db, running, actor="test", reason="")
    bench.wait(running, "cancelled")
    pause(bench.db, SYSTEM.kind, actor="test", reason="")
    waiting = bench.put(SYSTEM)
    resume(bench.db, SYSTEM.kind, actor="test", reason="")
    for job_id in [*succeed, waiting]:
        bench.wait(job_id, "succeeded")
    for job_id in die:
        bench.wait(job_id, "dead")
    ticked = "SELECT 1 FROM background_jobs WHERE kind = 'ticked' AND status = 'succeeded'"
    wait_for(lambda: bench.db.execute(ticked).fetchone(), "a schedule's occurrence")


@pytest.mark.parametrize("rotation", ROTATIONS)
@pytest.mark.parametrize("listening", ["direct", "off"])
def test_everything_works_and_nothing_is_left_in_a_session(
    bench: Bench, pooled: Pooled, rotation: str, listening: str
) -> None:
    through = pooled(**ROTATIONS[rotation])
    hearing = {"WORKER_LISTEN_URL": bench.url} if listening == "direct" else {"WORKER_LISTEN": "off"}
    worker = bench.start(through, **hearing)
    use_everything(bench)
    assert worker.stop() == 0
    assert not TROUBLE.findall(worker.text()), worker.text()
    assert worker.text().count("do without prepared statements") == 1
    assert left_behind(through, int(str(ROTATIONS[rotation]["default_pool_size"]))) == []


def test_a_worker_that_hears_nothing_says_so_once_and_polls(bench: Bench, pooled: Pooled, tmp_path: Path) -> None:
    """A notification that a session sends itself comes back even there, so it proves nothing."""
    worker = bench.start(pooled(default_pool_size=3), WORKER_POLL_SECONDS="0.2")
    worker.wait_log("WARNING oomph.listener: no notification of another session arrives, so jobs are found by polling")
    for _ in range(10):
        bench.wait(bench.put(AGENT), "succeeded")
    assert worker.stop() == 0
    assert len(re.findall("WARNING|ERROR", worker.text())) == 1, worker.text()
    # A session that listened for jobs would be told of each, and the pooler's log of each one told.
    assert (tmp_path / "pgbouncer.log").read_text().count("when not linked") <= 1


def test_a_pooler_in_session_mode_is_heard_through(bench: Bench, pooled: Pooled) -> None:
    worker = bench.start(pooled(pool_mode="session", default_pool_size=10), WORKER_POLL_SECONDS="60")
    wait_for(
        lambda: bench.db.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%control%'"
        ).fetchone(),
        "the listener",
    )
    for _ in range(3):
        bench.wait(bench.put(AGENT), "succeeded", seconds=5)
    assert worker.stop() == 0
    assert "by polling alone" not in worker.text()


@pytest.mark.parametrize("ahead", [0, 1])
async def test_a_claim_never_runs_what_somebody_else_prepared(
    db: "psycopg.Connection[Any]", pooled: Pooled, ahead: int
) -> None:
    """Prepared statements are named by counting, so another client's in the same session has the claim's name."""
    through = pooled(default_pool_size=2, server_round_robin=1)
    db.execute("CREATE TABLE harm (done text)")
    with psycopg.connect(through) as holder, psycopg.connect(through, autocommit=True, prepare_threshold=0) as other:
        holder.execute("SELECT 1")  # so that there is a second session, in which nothing is prepared
        other.execute(
            "INSERT INTO harm VALUES (concat(%s::uuid, %s::text, %s::text[], %s::smallint, %s::float8)) RETURNING 1",
            [uuid.uuid4(), "", [], 1, 1.0],
        )
    db.execute("TRUNCATE harm")
    for _ in range(ahead):
        with psycopg.connect(through, autocommit=True) as turn:
            turn.execute("SELECT 1")
    database = Database(through, call_timeout=5, application_name="pooled")
    wanted = Wanted(uuid.uuid4(), "agent", ["note"], 1, 1.0)
    for _ in range(4):
        assert await database.claims.fetch_together(wanted.call) == [[]]
    await database.claims.close()
    assert db.execute("SELECT count(*) FROM harm").fetchone() == (0,)


def test_the_commands_work_through_it(server: str, tmp_path: Path, pooled: Pooled) -> None:
    port = conninfo_to_dict(pooled(default_pool_size=2, server_round_robin=1))["port"]
    name = f"t_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    bare = make_conninfo(server, dbname=name, host="127.0.0.1", port=str(port))

    def oomph(*arguments: str) -> str:
        done = CliRunner().invoke(cli, [*arguments, "--database", bare], prog_name="oomph")
        assert done.exit_code == 0, done.output
        return done.stdout

    try:
        oomph("migrate")
        with psycopg.connect(make_conninfo(server, dbname=name), autocommit=True) as db:
            db.execute("INSERT INTO background_jobs (kind, pool, payload) VALUES ('note', 'agent', '{}')")
            db.execute("INSERT INTO background_kinds (kind) VALUES ('note')")
        assert "note" in oomph("jobs", "list")
        oomph("kinds", "pause", "note", "--actor", "test", "--reason", "a try")
        assert "a try" in oomph("kinds", "list")
        oomph("kinds", "resume", "note", "--actor", "test")
        oomph("jobs", "cancel", "1", "--actor", "test")
        assert "cancelled" in oomph("jobs", "show", "1")
        assert left_behind(bare, 2) == []
    finally:
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
