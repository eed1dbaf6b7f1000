"""A PostgreSQL of a test's own: to be stopped in any way, filled up, copied to a standby and promoted."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from supervisor.embedded.account import Account
from supervisor.embedded.programs import find_programs
from supervisor.testing.waiting import wait_for

SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "100",
    "autovacuum_naptime": "1h",
}
INITDB = ("--username=postgres", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")
READY_SECONDS = 30.0


@cache
def programs() -> tuple[Account, Path]:
    """Who runs the servers, and the folder of their programs."""
    account = Account.for_folders()
    return account, find_programs(account, Path(tempfile.gettempdir()))


def run(program: str, *arguments: str | Path) -> None:
    """One of PostgreSQL's programs, to its end."""
    account, folder = programs()
    done = account.run(folder / program, *arguments)
    assert done.returncode == 0, done.stderr


class Cluster:
    """The server of a folder. `settings` go on its command line, `through` before it: a command that starts it."""

    def __init__(self, folder: Path, *, settings: dict[str, str] | None = None, through: Sequence[str] = ()) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.settings = SETTINGS | (settings or {})
        self._through = through
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """By its socket, whatever network it is in."""
        return make_conninfo("", host=str(self.folder), user="postgres", dbname="postgres")

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        account, folder = programs()
        command = [*self._through, "setpriv", "--pdeathsig", "INT"]
        if os.geteuid() == 0:
            command += ["--reuid", str(account.uid), "--regid", str(account.gid), "--clear-groups"]
        command += [str(folder / "postgres"), "-D", str(self.data), "-k", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *(f"--{name}={value}" for name, value in self.settings.items())],
                cwd="/",
                stdout=log,
                stderr=log,
            )

        def answers() -> bool:
            assert not self.has_ended, self.log
            return self.answers()

        wait_for(answers, "a server that answers", READY_SECONDS)

    def answers(self) -> bool:
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT is PostgreSQL's fast shutdown, SIGQUIT its immediate one."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(READY_SECONDS)

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as admin:
            for statement in statements:
                admin.execute(statement)  # type: ignore[arg-type]


@contextmanager
def new_folder() -> Iterator[Path]:
    """A short path, for a socket in it, that the server's user owns."""
    account, _ = programs()
    folder = Path(tempfile.mkdtemp(prefix="oomph-pg-"))
    os.chown(folder, account.uid, account.gid)
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def new_cluster(
    *,
    settings: dict[str, str] | None = None,
    through: Sequence[str] = (),
    initdb: Sequence[str | Path] = (),
    guests: str = "",
) -> Iterator[Cluster]:
    """A running server, for the time of the block; hosts of the network `guests` may come in."""
    with new_folder() as folder:
        cluster = Cluster(folder, settings=settings, through=through)
        run("initdb", "-D", cluster.data, *INITDB, *initdb)
        if guests:
            with (cluster.data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {guests} trust\n")
        with running(cluster):
            yield cluster


@contextmanager
def new_standby(primary: Cluster) -> Iterator[Cluster]:
    """A streaming copy of a running server, for the time of the block."""
    with new_folder() as folder:
        standby = Cluster(folder, settings=primary.settings)
        run("pg_basebackup", "-D", standby.data, "-d", primary.url, "-R", "-c", "fast", "--no-sync")
        with running(standby):
            yield standby


@contextmanager
def running(cluster: Cluster) -> Iterator[None]:
    try:
        cluster.start()
        yield
    finally:
        with suppress(ProcessLookupError):
            cluster.stop(signal.SIGQUIT)
