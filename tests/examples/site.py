"""A web service of `examples/`, as a process, and a client for it."""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from supervisor.testing.waiting import wait_for

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@dataclass(frozen=True)
class Site:
    """A folder of `examples/` with its environment, and the port that its service listens on."""

    folder: Path
    environment: dict[str, str]
    port: int

    def ask(self, path: str, body: bytes | None = None, content_type: str = "application/json") -> tuple[int, Any]:
        """The status and the JSON of an answer. With a body, it is a POST."""
        address = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(address, data=body, headers={"Content-Type": content_type})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    def run(self, *command: str) -> str:
        """Run a command of the example to its end; its output."""
        done = subprocess.run(
            [str(Path(sys.executable).parent / command[0]), *command[1:]],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@contextmanager
def serving(site: Site, log: Path, *command: str) -> Iterator[None]:
    """The service's process, once it listens."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / command[0]), *command[1:]],
            cwd=site.folder,
            env=site.environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )

    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", site.port)) == 0

    try:
        wait_for(listens, f"a service on port {site.port}", 30)
        yield
    finally:
        process.terminate()
        process.wait(20)


def as_url(conninfo: str) -> str:
    """A connection string as `postgresql://...`, which SQLAlchemy reads."""
    named = conninfo_to_dict(conninfo)
    login = f"{named['user']}:{named['password']}" if "password" in named else named["user"]
    query = "&".join(f"{name}={named[name]}" for name in ("host", "port") if name in named)
    return f"postgresql://{login}@/{named['dbname']}?{query}"


def environment(url: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WORKER_", "DJANGO_"))}
    return {**kept, "DATABASE_URL": url, "PYTHONPATH": str(ROOT)}
