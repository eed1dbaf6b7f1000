"""A throw-away server of the PostgreSQL that this system has installed, where it has one."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from supervisor.embedded.account import Account

SETTINGS = ("listen_addresses=", "fsync=off", "synchronous_commit=off", "full_page_writes=off")
START_SECONDS = 30.0


def programs() -> Path | None:
    """The folder of the newest installed server's programs; None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    anywhere = shutil.which("postgres")
    return Path(anywhere).resolve().parent if anywhere else None


@contextmanager
def system_server(directory: Path) -> Iterator[str]:
    """Run it in `directory`; its URL."""
    binaries = programs()
    assert binaries is not None, "no PostgreSQL is installed on this system"
    directory.mkdir(mode=0o755)
    account = Account.for_folders(directory)
    data, sockets = directory / "data", directory / "run"
    for folder in (data, sockets):
        account.make_private(folder)
    made = account.run(binaries / "initdb", "-D", data, "--username=postgres", "--encoding=UTF8", "--locale=C", "-N")
    assert made.returncode == 0, made.stderr
    settings = [part for setting in SETTINGS for part in ("-c", setting)]
    log = (directory / "log").open("wb")
    server = subprocess.Popen(
        [binaries / "postgres", "-D", data, "-k", sockets, *settings],
        cwd="/",
        stdout=log,
        stderr=log,
        **({} if account.uid == os.geteuid() else {"user": account.uid, "group": account.gid, "extra_groups": []}),
    )
    try:
        url = f"postgresql://postgres@/postgres?host={sockets}"
        _wait_ready(url, server, directory / "log")
        yield url
    finally:
        server.terminate()
        server.wait()
        log.close()
        shutil.rmtree(directory)


def _wait_ready(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        else:
            return
