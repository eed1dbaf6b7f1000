"""`oomph doctor` on this host, with real databases and templates."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from jobs.sql import statement
from supervisor.doctor import examination
from tests.commands.conftest import Connection, Oomph
from tests.commands.doctored import OF_THE_DATABASE, OF_THE_HOST, findings

APP = "tests.commands.declared:app"


def test_a_database_that_fits_is_found_well(oomph: Oomph) -> None:
    found = findings(oomph("doctor", "--json", "--app", APP))
    assert found.keys() >= {"settings", "app"} | OF_THE_HOST | OF_THE_DATABASE
    assert {found[name]["level"] for name in OF_THE_DATABASE} == {"ok"}, found
    assert found["app"]["found"] == f"{APP}: 3 kinds, 1 of them in `ingest`"
    assert "MB are shared" in found["fork safety"]["found"]
    assert found["claim plan"]["found"] == "by Index Scan background_jobs_claim"


def test_a_report_shows_each_check_and_what_to_do(oomph: Oomph) -> None:
    answer = oomph("doctor", WORKER_INGEST_CONCURENCY="2", COLUMNS="100")
    assert answer.status == 0
    lines = answer.out.splitlines()
    assert lines[0].split() == ["CHECK", "LEVEL", "FOUND"]
    assert "variables: warning" in lines
    assert "WORKER_INGEST_CONCURENCY: no such setting" in answer.out
    assert "is it misspelt?" in answer.out
    assert lines[-1].endswith("0 error")
    assert max(map(len, lines)) <= 100


def test_without_an_app_it_says_what_was_left_out(oomph: Oomph) -> None:
    found = findings(oomph("doctor", "--json"))
    assert found["app"]["found"] == found["fork safety"]["found"].replace("no app", "none") == "left out: none is named"
    assert found["fork"]["level"] == "ok"  # a template that loads nothing has told
    assert found.keys() >= OF_THE_HOST


def test_without_a_database_the_rest_is_still_looked_at(anywhere: Oomph) -> None:
    found = findings(anywhere("doctor", "--json", "--app", APP), status=1)
    assert "no database is named" in found["database"]["found"]
    assert found.keys() >= OF_THE_HOST
    assert not found.keys() & (OF_THE_DATABASE - {"database"})


def test_a_database_that_cannot_be_reached_is_named_without_its_password(anywhere: Oomph, tmp_path: Path) -> None:
    url = f"host={tmp_path} user=ada password=hunter2 dbname=x"
    answer = anywhere("doctor", "--json", "--database", url, WORKER_POOLS="agent")
    assert f"cannot reach the database at {tmp_path}" in findings(answer, status=1)["database"]["found"]
    assert "hunter2" not in answer.out + answer.err


def test_two_databases_are_wrong_usage(anywhere: Oomph, tmp_path: Path) -> None:
    anywhere("doctor", "--database", "postgresql://x/y", "--embedded", str(tmp_path)).misused()


def test_a_database_without_tables_asks_for_migrate(anywhere: Oomph, bare_url: str) -> None:
    found = findings(anywhere("doctor", "--json", "--database", bare_url), status=1)
    assert "run `oomph migrate`" in found["migrations"]["found"]
    assert found["claim plan"]["found"].startswith("left out: ")
    assert found["clock"]["level"] == "ok"


def test_wrong_settings_are_all_told_and_the_rest_is_looked_at(oomph: Oomph) -> None:
    found = findings(oomph("doctor", "--json", WORKER_POLL_SECONDS="-1", WORKER_LEASE_SECONDS="0"), status=1)
    assert "WORKER_POLL_SECONDS=-1" in found["settings"]["found"]
    assert "WORKER_LEASE_SECONDS=0" in found["settings"]["found"]
    assert found.keys() >= OF_THE_HOST | OF_THE_DATABASE


def test_what_only_children_need_is_not_asked_of_a_worker_without_them(oomph: Oomph) -> None:
    found = findings(oomph("doctor", "--json", "--app", APP, WORKER_POOLS="agent,system", WORKER_LISTEN="off"))
    assert not found.keys() & OF_THE_HOST
    assert "off (WORKER_LISTEN)" in found["NOTIFY"]["found"]


def test_more_children_than_fit_are_an_error(oomph: Oomph) -> None:
    settings = {"WORKER_INGEST_CONCURRENCY": "4", "WORKER_INGEST_BUDGET_MB": "3000"}
    found = findings(oomph("doctor", "--json", **settings), status=1)
    assert "allowed are 1 to 2 children" in found["memory"]["found"]


def test_a_cgroup_that_was_named_and_is_none_is_an_error(oomph: Oomph, tmp_path: Path) -> None:
    found = findings(oomph("doctor", "--json", WORKER_INGEST_CGROUP=str(tmp_path)), status=1)
    assert "it has no cgroup.procs" in found["cgroup delegation"]["found"]
    assert list(tmp_path.iterdir()) == []


PRELOADED = """
from jobs import App, Handler, Payload, Pool, Task

class Nothing(Payload):
    pass

def work(payload: Nothing) -> None:
    pass

TASK = Task(kind="work", payload_type=Nothing, pool=Pool.INGEST)
app = App(handlers=[Handler(TASK, work)], preload=["{module}"])
"""


def test_a_preload_that_starts_a_thread_is_named(oomph: Oomph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "threaded_app.py").write_text(PRELOADED.format(module="threaded_preload"))
    (tmp_path / "threaded_preload.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True, name='busy').start()\n"
    )
    monkeypatch.chdir(tmp_path)
    found = findings(oomph("doctor", "--json", "--app", "threaded_app:app"), status=1)
    assert found["fork safety"]["level"] == "error"
    assert "busy by module threaded_preload" in found["fork safety"]["found"]
    assert "threaded_app" not in sys.modules


@pytest.mark.parametrize(("method", "check"), [("fork", "fork safety"), ("exec", "app")])
def test_an_app_that_hangs_is_given_up(
    oomph: Oomph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, check: str
) -> None:
    (tmp_path / f"hanging_{method}.py").write_text("import threading\nthreading.Event().wait()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(examination, "TEMPLATE_SECONDS", 2.0)
    monkeypatch.setattr(examination, "LOAD_SECONDS", 0.2)
    answer = oomph("doctor", "--json", "--app", f"hanging_{method}:app", WORKER_INGEST_START_METHOD=method)
    found = findings(answer, status=1)
    assert found[check]["level"] == "error"
    assert ("within 2 s" if method == "fork" else "not done after 0.2 s") in found[check]["found"]
    assert found.keys() >= OF_THE_DATABASE


def test_what_an_app_prints_does_not_reach_the_json(url: str, tmp_path: Path) -> None:
    (tmp_path / "talking_app.py").write_text(PRELOADED.format(module="talking_preload"))
    (tmp_path / "talking_preload.py").write_text("import os\nprint('hello')\nos.write(1, b'there')\n")
    done = subprocess.run(
        [str(Path(sys.executable).parent / "oomph"), "doctor", "--json", "--app", "talking_app:app"],
        cwd=tmp_path,
        env={**os.environ, "DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {finding["name"] for finding in json.loads(done.stdout)} >= OF_THE_HOST | OF_THE_DATABASE
    assert "hello" in done.stderr
    assert "there" in done.stderr


def test_who_holds_a_snapshot_is_found_by_pid(oomph: Oomph, url: str) -> None:
    with psycopg.connect(url, application_name="nightly report") as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("SELECT count(*) FROM background_jobs")
        found = findings(oomph("doctor", "--json"))["oldest snapshot"]["found"]
        for told in (f"pid {holder.info.backend_pid},", "'nightly report'", "idle in transaction"):
            assert told in found
    assert findings(oomph("doctor", "--json"))["oldest snapshot"]["found"] == "nobody holds one"


def test_who_has_written_and_not_committed_is_found_too(oomph: Oomph, url: str) -> None:
    with psycopg.connect(url) as holder:
        holder.execute("INSERT INTO background_kinds (kind, pool) VALUES ('greet', 'system')")
        found = findings(oomph("doctor", "--json"))["oldest snapshot"]["found"]
        assert f"pid {holder.info.backend_pid}," in found
        holder.rollback()


def test_a_claim_without_its_index_is_an_error(oomph: Oomph, db: Connection) -> None:
    db.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'background_jobs_claim'::regclass")
    found = findings(oomph("doctor", "--json"), status=1)["claim plan"]
    assert "not by background_jobs_claim" in found["found"]
    assert "REINDEX INDEX CONCURRENTLY background_jobs_claim" in found["advice"]
    db.execute("REINDEX INDEX CONCURRENTLY background_jobs_claim")
    assert findings(oomph("doctor", "--json"))["claim plan"]["level"] == "ok"


def test_the_plan_that_is_shown_is_that_of_the_claim(db: Connection) -> None:
    """A statement inside of a function cannot be explained, so there is a copy; here it is held to the original."""

    def squeezed(text: str) -> str:
        return " ".join(text.split())

    (source,) = db.execute("SELECT prosrc FROM pg_proc WHERE proname = 'background_claim'").fetchone() or ("",)
    lateral = squeezed(statement("explain_claim")).partition("CROSS JOIN LATERAL (")[2].partition(") AS due")[0]
    assert lateral.count("%(slots)s") == 1
    original = lateral.replace("%(slots)s", "slots").replace(
        "('-infinity'::timestamptz, -9223372036854775808)",
        "(coalesce(to_timestamp(mark.run_after), earliest), coalesce(mark.id, -9223372036854775808))",
    )
    assert original in squeezed(str(source))


def test_due_jobs_that_nobody_works_on_are_told(oomph: Oomph, db: Connection, insert: Callable[..., int]) -> None:
    assert findings(oomph("doctor", "--json"))["workers"]["found"] == "0 live; no job is due"
    insert(kind="misspelt", pool="agent")
    insert(kind="misspelt", pool="agent")
    found = findings(oomph("doctor", "--json"), status=1)["workers"]
    assert (found["level"], found["found"]) == ("error", "none lives; nobody serves agent, where 2 are due")
    assert "`oomph worker`" in found["advice"]
    db.execute(
        "INSERT INTO background_workers (id, host, pid, version, pools, kinds, lease_until) VALUES"
        " (gen_random_uuid(), 'web-1', 1, '1', '{system,ingest}', '{}', clock_timestamp() + interval '1 hour')"
    )
    found = findings(oomph("doctor", "--json"))["workers"]
    assert (found["level"], found["found"]) == (
        "warning",
        "1 live, for ingest, system; nobody serves agent, where 2 are due",
    )
    assert "WORKER_POOLS" in found["advice"]
    db.execute("UPDATE background_workers SET pools = '{agent}'")
    assert findings(oomph("doctor", "--json"))["workers"] | {"name": ""} == {
        "name": "", "level": "ok", "found": "1 live, for agent", "advice": "",
    }  # fmt: skip


def test_a_read_only_server_is_an_error(oomph: Oomph, db: Connection) -> None:
    db.execute(
        sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(sql.Identifier(db.info.dbname))
    )
    assert findings(oomph("doctor", "--json"), status=1)["writable"]["level"] == "error"


def test_a_table_without_autovacuum_is_named(oomph: Oomph, db: Connection) -> None:
    db.execute("ALTER TABLE background_jobs SET (autovacuum_enabled = off)")
    assert findings(oomph("doctor", "--json"))["dead rows"]["found"] == "no autovacuum of background_jobs"


@pytest.fixture
def stranger(db: Connection, url: str) -> Iterator[str]:
    """The URL of a role that may connect, twice at once, and nothing else."""
    role = f"r_{uuid.uuid4().hex}"
    db.execute(sql.SQL("CREATE ROLE {} LOGIN CONNECTION LIMIT 7").format(sql.Identifier(role)))
    yield make_conninfo(url, user=role)
    db.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def test_what_a_role_may_not_see_is_said_and_the_rest_is_told(anywhere: Oomph, stranger: str, url: str) -> None:
    with psycopg.connect(url) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("SELECT 1")
        found = findings(anywhere("doctor", "--json", "--database", stranger))
    assert found["migrations"]["level"] == "warning"
    assert found["migrations"]["found"].startswith("left out: InsufficientPrivilege: permission denied")
    assert found["oldest snapshot"]["level"] == "warning"
    assert "pg_read_all_stats" in found["oldest snapshot"]["advice"]
    assert found["connections"]["found"].startswith("6 left")
    assert found["clock"]["level"] == "ok"
