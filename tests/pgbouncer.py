"""A real pooler before a test's server, where this system has one."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
MISSING = "no pgbouncer is installed here (Debian's package of that name): there is no real pooler to go through"
START_SECONDS = 10.0


def version() -> tuple[int, ...]:
    """The release that is installed; skips where there is none."""
    if PGBOUNCER is None:
        pytest.skip(MISSING)
    told = subprocess.run([PGBOUNCER, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"PgBouncer (\d+)\.(\d+)", told)
    assert found is not None, told
    return int(found[1]), int(found[2])


@contextmanager
def pgbouncer(url: str, folder: Path, **settings: object) -> Iterator[str]:
    """A pooler before the server of `url`, which listens on a Unix socket; its own URL. Skips where there is none."""
    if PGBOUNCER is None:
        pytest.skip(MISSING)
    server = conninfo_to_dict(url)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lines = {"listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": "", "auth_type": "any", **settings}
    target = f"* = host={server['host']} port={server.get('port', 5432)} user={server['user']}"
    file = folder / "pgbouncer.ini"
    file.write_text(
        f"[databases]\n{target}\n[pgbouncer]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items())
    )
    # It refuses to be root, and who may use the server's socket is the owner of its folder.
    owner = Path(str(server["host"])).owner()
    command = [PGBOUNCER, *(["-u", owner] if os.geteuid() == 0 else []), str(file)]
    with (folder / "pgbouncer.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + START_SECONDS
        while not answers(port):
            assert running.poll() is None, (folder / "pgbouncer.log").read_text()
            assert time.monotonic() < until, "pgbouncer did not start"
        yield f"postgresql://{server['user']}@127.0.0.1:{port}/{server['dbname']}"
    finally:
        running.terminate()
        running.wait(10)


def answers(port: int) -> bool:
    """Whether somebody listens on this port of this host."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.1).close()
    except OSError:
        return False
    return True
