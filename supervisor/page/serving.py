"""The page as a process of its own."""

import logging
import os
import re
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.routing import Route

from supervisor.errors import CommandError
from supervisor.page.access import Access, Actor, Role, ThisHost, is_loopback_name
from supervisor.page.application import JobsPage
from supervisor.page.connections import MakesRoom
from supervisor.page.health import Health
from supervisor.page.token_file import read_token_file
from supervisor.page.tokens import HOW_TO_MAKE_ONE, TokenError, read_tokens

TOKENS_VARIABLE = "OOMPH_PAGE_TOKENS"
MAX_CONNECTIONS = 200  # of all viewers; where all of them ask, more are answered that there is no room
PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")  # what links, cookies and the protocol all take as it is
GRACE_SECONDS = 5  # for what is being answered when the process is told to stop

log = logging.getLogger("oomph.page")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen, and the path by which a proxy in front reaches the page."""

    host: str
    port: int
    path: str = ""

    def __post_init__(self) -> None:
        if not PATH.fullmatch(self.path):
            raise CommandError(f"--path {self.path}: must read like /background or /internal/jobs, in plain ASCII")


class PageProcess(JobsPage):
    """The page, and its health: an app that the page is mounted in has a health of its own."""

    def _routes(self) -> list[Route]:
        return [*Health(self._desk.database).routes(), *super()._routes()]


def choose_access(address: Address, token_file: Path | None, actor: str) -> Access:
    """Tokens where there are any; without, whoever is on this host. Raises `CommandError`."""
    text = os.environ.get(TOKENS_VARIABLE, "")
    try:
        if token_file is not None:
            return read_token_file(token_file)
        if text:
            return read_tokens(text.replace(",", "\n"), TOKENS_VARIABLE)
        if not is_loopback_name(address.host):
            raise CommandError(
                f"--host {address.host} lets other hosts in, and nothing says who may look and act. Pass --token-file "
                f"with a line such as `owner ada TOKEN` for each person ({HOW_TO_MAKE_ONE}), or leave --host out"
            )
        return ThisHost(Actor(actor, Role.OWNER))
    except TokenError as error:
        raise CommandError(str(error)) from error
    except ValueError as error:
        raise CommandError(f"--actor: {error}") from error


def serve(database_url: str, address: Address, access: Access, *, name: str = "") -> None:
    """Answer until told to stop by SIGTERM or Ctrl-C. Raises `CommandError` where the address cannot be listened on."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # that it starts and ends is nobody's news
    page = PageProcess(database_url, authenticate=access, name=name)
    with _listen(address) as listening:
        if isinstance(access, ThisHost) and not is_loopback_name(listening.getsockname()[0]):
            raise CommandError(f"--host {address.host} is not an address of this host alone; nothing was started")
        config = uvicorn.Config(
            page,
            root_path=address.path.rstrip("/"),
            log_config=None,
            access_log=False,
            server_header=False,
            http=MakesRoom,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        server = uvicorn.Server(config)

        def stop_in_order(_number: int, _frame: object) -> None:
            # The server has handlers of its own while it runs; a signal that comes before counts as well. Afterwards it
            # raises again what it caught, and to be told to stop is not to fail.
            server.should_exit = True

        before = {number: signal.signal(number, stop_in_order) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            print(f"Background jobs: {_url(listening, address)}", flush=True)
            server.run(sockets=[listening])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _listen(address: Address) -> socket.socket:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        return socket.create_server(where[:2], family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        raise CommandError(
            f"--host {address.host} --port {address.port} cannot be listened on: {error.strerror}; choose another "
            "port, or an address of this host"
        ) from error


def _url(listening: socket.socket, address: Address) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{address.path.rstrip('/')}/"
