"""The servers that every measurement stands on, and a fresh place for each."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from bench.marks import PATH, Marks
from bench.processes import Command, Running, exact_cpu_seconds, tree_of
from supervisor.embedded import EmbeddedServer

SETTINGS = {
    "shared_buffers": "256MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "300",  # P10's stubs have two each
    # Counts only in databases that ask for it: `count_statements`.
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
}
REDIS_SETTINGS = ("--save", "3600 1 300 100 60 10000", "--appendonly", "no")  # as Debian ships it
REDIS_SECONDS = 10.0
SHOWN_CHARS = 160  # of a statement, in the results


@dataclass(frozen=True, slots=True)
class Place:
    """Where one measurement happens: a fresh database (or an emptied Redis), the marks, the log."""

    url: str
    marks: Marks
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """What its worker finds it by."""
        return {"BENCH_URL": self.url, PATH: str(self.marks.path)}


class Ground:
    """Entered, the servers run; left, nothing of them remains."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="oomph-bench-"))
        self.folder.chmod(0o755)  # PostgreSQL runs as another user where the bench runs as root
        self._server = EmbeddedServer(self.folder / "postgresql", durable=True, settings=SETTINGS)
        self._stack = ExitStack()
        self._admin_url = ""
        self._places = 0
        self._databases: list[str] = []
        self._is_kept = False
        self.redis_port: int | None = None
        self.versions: dict[str, str] = {}

    def __enter__(self) -> Self:
        with self._stack:
            self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self._admin_url = self._server.start()
            self._stack.callback(self._server.stop)
            with psycopg.connect(self._admin_url) as db:
                self.versions["postgresql"] = str(_one(db, "SHOW server_version"))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_redis(self) -> str | None:
        """Start Redis where it does not run yet. The reason why not, where there is none."""
        if self.redis_port is not None:
            return None
        if (program := shutil.which("redis-server")) is None:
            return "no redis-server on PATH"
        port, folder = _free_port(), self.folder / "redis"
        folder.mkdir()
        listening = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), *REDIS_SETTINGS]
        redis = Running(Command(listening, program=program), self.folder / "redis.log")
        self._stack.callback(redis.stop)
        redis.wait_log("Ready to accept connections", REDIS_SECONDS)
        self.redis_port = port
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        self.versions["redis"] = told.partition("v=")[2].partition(" ")[0]
        return None

    def redis_url(self, database: int = 0) -> str:
        assert self.redis_port is not None
        return f"redis://127.0.0.1:{self.redis_port}/{database}"

    def place(self, url: str) -> Place:
        """A place with marks and log of its own."""
        self._places += 1
        name = f"place-{self._places}"
        return Place(url, Marks(self.folder / f"{name}.marks"), self.folder / f"{name}.log")

    def database(self, template: str | None = None) -> str:
        """The URL of a fresh database; a copy of `template` where one is named."""
        name = f"bench_{self._places}_{len(self._databases)}"
        with psycopg.connect(self._admin_url, autocommit=True) as db:
            for old in () if self._is_kept else self._databases:
                # Only one lives at a time: a million rows each would fill the disk.
                db.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(old)))
            make = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
            if template is not None:
                make += sql.SQL(" TEMPLATE {} STRATEGY FILE_COPY").format(sql.Identifier(template))
            db.execute(make)
        self._databases = [*self._databases, name]
        return self.url_of(name)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Within it, a fresh database leaves those there are."""
        self._is_kept = True
        try:
            yield
        finally:
            self._is_kept = False

    def template(self, name: str) -> str:
        """The URL of a database that stays, to be copied by `database(name)`, until `drop(name)`."""
        with psycopg.connect(self._admin_url, autocommit=True) as db:
            db.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url_of(name)

    def drop(self, name: str) -> None:
        with psycopg.connect(self._admin_url, autocommit=True) as db:
            db.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def url_of(self, database: str) -> str:
        return self._admin_url.replace("/postgres?", f"/{quote(database)}?")

    def postgresql_cpu_seconds(self) -> float:
        """CPU time of all server processes so far, those that ended included."""
        postmaster = int((self._server.data / "postmaster.pid").read_text().split()[0])
        ended = sum(map(int, _stat_fields(postmaster)[13:15])) / os.sysconf("SC_CLK_TCK")
        return ended + sum(exact_cpu_seconds(process.pid) for process in tree_of(postmaster))


def _stat_fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def settle(url: str) -> None:
    """As after a quiet minute: statistics are current, dirty pages written, no checkpoint is due."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("VACUUM ANALYZE")
        db.execute("CHECKPOINT")


@dataclass(frozen=True, slots=True)
class Statements:
    """What ran in a database since its counting was begun: calls by text. Ours are left out."""

    calls: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.calls.values())

    @property
    def claims(self) -> int:
        """Those that take jobs: the claim's function, or a statement that skips locked rows and counts an attempt."""
        return sum(calls for text, calls in self.calls.items() if _takes_jobs(text.lower()))

    def per_second(self, seconds: float) -> dict[str, float]:
        """By the beginning of its text, the most frequent first."""
        ran = sorted(((n, text) for text, n in self.calls.items() if n), reverse=True)
        return {" ".join(text.split())[:SHOWN_CHARS]: round(n / seconds, 3) for n, text in ran}

    def since(self, before: "Statements") -> "Statements":
        return Statements({text: n - before.calls.get(text, 0) for text, n in self.calls.items()})


def count_statements(url: str) -> None:
    """Let this database count the statements of sessions that begin from now on."""
    with psycopg.connect(url, autocommit=True) as db:
        name = sql.Identifier(db.info.dbname)
        db.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        db.execute(sql.SQL("ALTER DATABASE {} SET pg_stat_statements.track = 'top'").format(name))


def statements(url: str) -> Statements:
    """How often each statement ran in this database so far; BEGIN and COMMIT are statements too."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET pg_stat_statements.track = 'none'")
        rows = db.execute(
            "SELECT query, sum(calls)::bigint FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid "
            "WHERE d.datname = current_database() GROUP BY query"
        ).fetchall()
    return Statements({str(query): int(calls) for query, calls in rows})


def _one(db: psycopg.Connection[Any], query: str) -> object:
    row = db.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def monotonic_of(epoch: float) -> float:
    """A moment of the date on CLOCK_MONOTONIC, while nobody steps the date."""
    return epoch - time.time() + time.monotonic()


def _takes_jobs(text: str) -> bool:
    return "background_claim(" in text or ("skip locked" in text and "attempt" in text)
