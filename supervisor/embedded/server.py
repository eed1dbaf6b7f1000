"""One server for a folder, shared by the processes that use it: see the package's docstring for the protocol."""

import fcntl
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from supervisor.embedded.account import Account
from supervisor.embedded.errors import EmbeddedServerError
from supervisor.embedded.postmaster import Postmaster, forget_the_dead, launch, tail
from supervisor.embedded.programs import find_programs, initialise

START_SECONDS = 120.0  # recovery after the kill of a busy server takes its time
POLL_SECONDS = 0.01
ORPHAN_SECONDS = 0.2
ORPHANS = "pre-existing shared memory block"  # the server's own words, in LC_ALL=C
LOG_BYTES = 8 << 20  # a longer log is set aside at the next start, one generation
SOCKET_NAME = ".s.PGSQL.5432"
SOCKET_PATH_BYTES = 107  # sockaddr_un.sun_path less its closing zero
SETTINGS = {"listen_addresses": "", "log_checkpoints": "off"}
THROW_AWAY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedServer:
    """The server of `data_dir`. `settings` go on its command line: {"fsync": "on", "max_connections": "300"}."""

    def __init__(self, data_dir: Path, *, durable: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self.directory = data_dir.resolve()
        self.data = self.directory / "data"
        self.log = self.directory / "server.log"
        self.durable = durable
        self.settings = SETTINGS | ({} if durable else THROW_AWAY) | dict(settings or {})
        self._users: int | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start the server, or share the one that runs, and return its DATABASE_URL. Raises EmbeddedServerError."""
        assert self._users is None, "already started"
        if not self.directory.exists():
            self.directory.mkdir(parents=True)
            self.directory.chmod(0o755)
        with self._turn():
            users = self._lock("users", fcntl.LOCK_SH)
            try:
                url = self._start()
            except BaseException:
                os.close(users)
                raise
            self._users = users
        return url

    def stop(self) -> None:
        """Give the server up, and stop it if nobody else uses it. Raises EmbeddedServerError if it does not end."""
        if self._users is None:
            return
        with self._turn():
            try:
                with suppress(BlockingIOError):  # another process uses it; the last one stops it
                    fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if server := Postmaster.of(self.data):
                        server.stop()
                        if server.sockets and server.sockets.parent != self.directory:
                            with suppress(OSError):
                                server.sockets.rmdir()
                    elif self._child and self._child.poll() is None:  # its folder was deleted
                        Postmaster(self._child.pid).stop()
                    if self._child:
                        self._child.wait()
            finally:
                os.close(self._users)
                self._users = None

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> str:
        found = self._running()
        # One that was just killed or told to stop can still be found, and ends while we wait for it.
        if found and (url := self._url_when_ready(found)):
            return url
        deadline = time.monotonic() + START_SECONDS
        while True:
            if url := self._url_when_ready(self._launch()):
                return url
            if self._child:
                self._child.wait()
            # Sessions of a killed server go on until their statement ends, and no new server may write beside them.
            if ORPHANS not in tail(self.log) or time.monotonic() > deadline:
                raise EmbeddedServerError(f"PostgreSQL ended while it started; the end of {self.log}: {tail(self.log)}")
            time.sleep(ORPHAN_SECONDS)

    def _lock(self, name: str, operation: int) -> int:
        # Opened for reading, so that root and the folder's owner can lock the same file, whoever made it.
        descriptor = os.open(self.directory / name, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, operation)
        return descriptor

    @contextmanager
    def _turn(self) -> Iterator[None]:
        descriptor = self._lock("turn", fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(descriptor)

    def _running(self) -> Postmaster | None:
        try:
            return Postmaster.of(self.data)
        except PermissionError:
            owner = self.data.stat().st_uid
            raise EmbeddedServerError(
                f"{self.data} belongs to user {owner}, as whom its server runs: start oomph as that user or as root"
            ) from None

    def _launch(self) -> Postmaster:
        account = Account.for_folders(self.data, self.directory)
        account.require_reach(self.directory)
        programs = find_programs(account, self.directory)
        initialise(account, programs, self.data, durable=self.durable)
        sockets = self.directory / "run"
        # Clients take a comma in a path for a list of hosts.
        if len(os.fsencode(sockets / SOCKET_NAME)) > SOCKET_PATH_BYTES or "," in str(sockets):
            name = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]
            sockets = Path(tempfile.gettempdir(), f"oomph-{name}")
        account.make_private(sockets)
        forget_the_dead(self.data, sockets)
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        quoted = '"' + str(sockets).replace('"', '""') + '"'
        settings = {"unix_socket_directories": quoted} | self.settings
        server, self._child = launch(account, programs, self.data, settings, self.log, outlives_us=self.durable)
        return server

    def _url_when_ready(self, server: Postmaster) -> str | None:
        """None if it ends, and no other one has taken its place."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            ended = server.wait_for_end(POLL_SECONDS)
            now = Postmaster.of(self.data)
            if now and now.ready:
                return f"postgresql://postgres@/postgres?host={quote(str(now.sockets))}"
            if ended and not now:
                return None
        raise EmbeddedServerError(
            f"PostgreSQL is not ready after {START_SECONDS:.0f} s; the end of {self.log}: {tail(self.log)}"
        )
