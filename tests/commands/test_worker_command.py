import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from shutil import rmtree

import psycopg
import pytest
import typer

from supervisor.commands import plain_worker
from supervisor.commands.application import cli
from supervisor.serve import Options
from tests.commands.conftest import Connection, Oomph

ROOT = Path(__file__).parents[2]
APP = "tests.commands.declared:app"
OOMPH = [str(Path(sys.executable).parent / "oomph")]
MODULE = [sys.executable, "-m", "supervisor"]
WAIT_SECONDS = 60


def run(command: list[str], *, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "WORKER_INGEST_MEMORY_MB": "64", "WORKER_INGEST_CONCURRENCY": "1", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("command", [[*OOMPH, "worker"], MODULE])
def test_a_worker_drains_the_queue_and_ends(command: list[str], url: str, oomph: Oomph, db: Connection) -> None:
    oomph("enqueue", "greet", '{"name": "ada"}', "--app", APP)
    oomph("enqueue", "parse", '{"name": "ben"}', "--app", APP)
    ended = run([*command, "--app", APP, "--drain"], DATABASE_URL=url)
    assert ended.returncode == 0, ended.stderr
    assert db.execute("SELECT status, count(*) FROM background_jobs GROUP BY 1").fetchall() == [("succeeded", 2)]
    assert ended.stdout == ""
    line = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.]+: .*")
    assert all(line.fullmatch(printed) for printed in ended.stderr.splitlines())


def test_a_worker_whose_host_lacks_a_time_zone_says_so_and_does_not_start(url: str, tmp_path: Path) -> None:
    (tmp_path / "calendar_app.py").write_text(
        "from jobs import App, Handler, Pool, Schedule, Task, Tick\n"
        "NIGHTLY = Task(kind='nightly', payload_type=Tick, pool=Pool.SYSTEM)\n"
        "async def clean(payload: Tick) -> None: ...\n"
        "def app() -> App:\n"
        "    schedule = Schedule('nightly', NIGHTLY, cron='30 2 * * *', timezone='Europe/Berlin')\n"
        "    return App([Handler(NIGHTLY, clean)], [schedule])\n"
    )
    command = [*OOMPH, "worker", "--app", "calendar_app:app", "--drain", "--pools", "system"]
    bare = run(command, cwd=tmp_path, DATABASE_URL=url, PYTHONPATH=str(ROOT), PYTHONTZPATH="")
    assert bare.returncode == 1
    assert "schedule nightly: timezone='Europe/Berlin' is not in the time zone data of this host" in bare.stderr
    assert "Traceback" not in bare.stderr
    assert run(command, cwd=tmp_path, DATABASE_URL=url, PYTHONPATH=str(ROOT)).returncode == 0


def test_only_the_named_pools_are_served(url: str, oomph: Oomph, db: Connection) -> None:
    oomph("enqueue", "greet", '{"name": "ada"}', "--app", APP)
    oomph("enqueue", "parse", '{"name": "ben"}', "--app", APP)
    ended = run([*OOMPH, "worker", "--app", APP, "--drain", "--pools", "system"], DATABASE_URL=url)
    assert ended.returncode == 0, ended.stderr
    assert db.execute("SELECT kind, status FROM background_jobs ORDER BY kind").fetchall() == [
        ("greet", "succeeded"),
        ("parse", "queued"),
    ]


def test_a_worker_with_an_embedded_database_makes_it_and_says_where_it_is() -> None:
    folder = Path("/tmp") / f"oomph-cli-{uuid.uuid4().hex[:12]}"
    worker = subprocess.Popen(
        [*OOMPH, "worker", "--app", APP, "--pools", "system", "--embedded", str(folder)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert worker.stdout is not None
        printed = worker.stdout.readline().strip()
        assert printed.startswith("DATABASE_URL=postgresql://")
        with psycopg.connect(printed.partition("=")[2]) as connection:
            assert connection.execute("SELECT count(*) FROM background_jobs").fetchone() == (0,)
        shared = run([*OOMPH, "kinds", "list", "--json", "--embedded", str(folder)])
        assert json.loads(shared.stdout) is not None
        worker.send_signal(signal.SIGTERM)
        assert worker.stdout.read() == ""
        assert worker.wait(WAIT_SECONDS) == 0
        assert not (folder / "data" / "postmaster.pid").exists()
    finally:
        worker.kill()
        worker.wait()
        assert worker.stdout is not None
        worker.stdout.close()
        rmtree(folder, ignore_errors=True)


def test_every_wrong_setting_has_its_line(anywhere: Oomph) -> None:
    told = anywhere(
        "worker", WORKER_INGEST_MEMORY_MB="lots", WORKER_LEASE_SECONDS="1", WORKER_LISTEN="maybe", WORKER_HTTP="web",
        WORKER_LOG_FORMAT="xml",
    ).refused()  # fmt: skip
    lines = told.splitlines()
    for expected in (
        "WORKER_INGEST_MEMORY_MB=lots: must be a whole number from 1 to",
        "WORKER_LEASE_SECONDS=1: must be a number from 2 to 3,600",
        "WORKER_LISTEN=maybe: allowed are on and off",
        "WORKER_LOG_FORMAT=xml: allowed are text and json",
        "WORKER_HTTP=web: must be a port from 0 to 65,535",
        "no app is named. Either set WORKER_APP (or pass --app)",
        "no database is named. Either set DATABASE_URL",
    ):
        assert sum(expected in line for line in lines) == 1, told


def test_a_heartbeat_too_close_to_the_lease_is_refused(oomph: Oomph) -> None:
    told = oomph("worker", "--app", APP, WORKER_HEARTBEAT_SECONDS="20").refused()
    assert "WORKER_HEARTBEAT_SECONDS=20 is more than a third of WORKER_LEASE_SECONDS=30" in told


def test_jobs_of_another_user_and_an_embedded_server_are_refused_together(anywhere: Oomph, tmp_path: Path) -> None:
    told = anywhere(
        "worker", "--app", APP, "--embedded", str(tmp_path / "db"), WORKER_INGEST_USER="nobody"
    ).refused()  # fmt: skip
    assert "WORKER_INGEST_USER=nobody does not go with --embedded" in told
    assert not (tmp_path / "db").exists()


def test_an_unknown_pool_is_refused(oomph: Oomph) -> None:
    assert "agent, ingest, system" in oomph("worker", "--app", APP, "--pools", "system,gpu").refused()


def test_an_app_that_does_not_import_shows_the_last_frame(url: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import math\nmath.sqrt(-1)\n")
    for command in ([*OOMPH, "worker"], MODULE):
        ended = run([*command, "--app", "broken:app"], cwd=tmp_path, DATABASE_URL=url)
        assert ended.returncode == 1
        assert f"ValueError at {tmp_path}/broken.py:2: math domain error" in ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_users_own_jobs_py_does_not_stand_in_for_the_package(url: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text("raise SystemExit('the wrong jobs')\n")
    (tmp_path / "mine.py").write_text("from jobs import App\napp = App(handlers=[])\n")
    for command in ([*OOMPH, "worker"], MODULE):
        for path in ("", "."):
            ended = run(
                [*command, "--app", "mine:app", "--drain", "--pools", "system"],
                cwd=tmp_path,
                DATABASE_URL=url,
                PYTHONPATH=path,
            )
            assert ended.returncode == 0, ended.stderr


def test_more_memory_than_the_host_has_is_refused_before_anything_starts(oomph: Oomph) -> None:
    told = oomph("worker", "--app", APP, WORKER_INGEST_CONCURRENCY="1000", WORKER_INGEST_MEMORY_MB="100000").refused()
    assert "WORKER_INGEST_MEMORY_MB=100000" in told
    told = oomph("worker", "--app", APP, WORKER_INGEST_CONCURRENCY="1000", WORKER_INGEST_MEMORY_MB="1000").refused()
    assert "WORKER_INGEST_CONCURRENCY=1000" in told


def test_a_database_without_the_schema_is_refused(anywhere: Oomph, bare_url: str) -> None:
    assert "`oomph migrate`" in anywhere("worker", "--app", APP, DATABASE_URL=bare_url).refused()


def test_an_unreachable_database_is_refused(anywhere: Oomph) -> None:
    told = anywhere("worker", "--app", APP, DATABASE_URL="postgresql://ada@127.0.0.1:1/db").refused()
    assert "cannot reach the database at 127.0.0.1:1" in told


def test_an_unknown_log_level_is_wrong_usage(oomph: Oomph) -> None:
    assert "debug, info, warning, error" in oomph("worker", "--app", APP, "--log-level", "loud").misused()


def test_the_app_and_its_handlers_find_the_database_that_an_option_named(url: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"import os\nfrom jobs import App\nassert os.environ['DATABASE_URL'] == {url!r}\napp = App(handlers=[])\n"
    )
    ended = run([*OOMPH, "worker", "--app", "mine:app", "--drain", "--database", url], cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr


def test_the_plain_way_has_the_options_of_the_command() -> None:
    parameters = typer.main.get_command(cli).commands["worker"].params  # type: ignore[attr-defined]
    known = {name.removeprefix("--"): parameter.is_flag for parameter in parameters for name in parameter.opts}
    assert known.pop("reload"), "for development only, not for a long life"
    assert known == dict.fromkeys(plain_worker.VALUED, False) | dict.fromkeys(plain_worker.FLAGS, True)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("", Options()),
        ("--app a:b --pools agent,system --drain", Options(app="a:b", pools="agent,system", drain=True)),
        ("--app=a:b --log-level=error", Options(app="a:b", log_level="error")),
        ("--embedded ./data", Options(embedded=Path("data"))),
        ("--database host=x", Options(database="host=x")),
        ("--app a:b --app c:d", Options(app="c:d")),
    ],
)
def test_what_is_spelt_plainly_needs_no_library(arguments: str, options: Options) -> None:
    assert plain_worker.understood(arguments.split()) == options


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            "--help",
            "-h",
            "--ap a:b",
            "--app",
            "--app --drain",
            "--drain=yes",
            "a:b",
            "--",
            "--unknown x",
            "--log-level loud",
        ),
        "--database postgresql:/// --embedded ./data",
    ],
)
def test_everything_else_is_the_librarys(arguments: str) -> None:
    assert plain_worker.understood(arguments.split()) is None


@pytest.mark.parametrize("arguments", ["--app nowhere:app", "--database postgresql://a:b@c@d/e --app x:y", ""])
def test_both_ways_refuse_with_the_same_words_and_status(arguments: str, anywhere: Oomph) -> None:
    told = anywhere("worker", *arguments.split()).refused()
    for command in ([*OOMPH, "worker"], MODULE):
        ended = run([*command, *arguments.split()])
        assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", told)


@pytest.mark.parametrize("arguments", ["--log-level loud", "--database x --embedded y", "--nothing"])
def test_wrong_usage_ends_with_2_both_ways(arguments: str) -> None:
    for command in ([*OOMPH, "worker"], MODULE):
        ended = run([*command, *arguments.split()])
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "Traceback" not in ended.stderr
