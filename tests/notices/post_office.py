"""A mail server, and a server of a webhook, in threads of the test."""

import email
import email.policy
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword

USER, PASSWORD = "oomph@example.org", "s3cr:t/päss"


@dataclass
class PostOffice:
    """What a mail server was given. `reply` decides about each mail, in the server's own thread, after it is kept."""

    mails: list[tuple[str, EmailMessage]] = field(default_factory=list)
    reply: Callable[[], str] = lambda: "250 OK"
    refuse: str = ""  # an address that nobody has here
    encrypted: list[bool] = field(default_factory=list)

    def to(self, address: str) -> list[EmailMessage]:
        return [mail for recipient, mail in self.mails if recipient == address]

    async def handle_RCPT(self, server: Any, session: Any, envelope: Envelope, address: str, options: Any) -> str:  # noqa: N802
        if address == self.refuse:
            return "550 5.1.1 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:  # noqa: N802
        content = envelope.original_content or b""
        mail = email.message_from_bytes(content, policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        self.encrypted.append(server.transport.get_extra_info("sslcontext") is not None)
        self.mails += [(recipient, mail) for recipient in envelope.rcpt_tos]
        return self.reply()


class Certificates:
    """A certificate for this host that no system trusts, and the file of who signed it."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.file = folder / "authority.pem"
        authority.cert_pem.write_to_path(self.file)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost", "127.0.0.1").configure_cert(self.context)


@contextmanager
def open_post_office(
    office: PostOffice, *, port: int = 0, starttls: ssl.SSLContext | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Serve `office` on localhost; the port. With TLS of either sort, only for who knows the password."""
    port = port or free_port()
    settings: dict[str, Any] = {}
    if starttls or tls:
        settings = {"auth_required": True, "authenticator": _authenticate, "auth_require_tls": starttls is not None}
    if starttls:
        settings |= {"tls_context": starttls, "require_starttls": True}
    controller = Controller(office, hostname="localhost", port=port, ssl_context=tls, **settings)
    controller.start()
    try:
        yield port
    finally:
        controller.stop()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    known = isinstance(data, LoginPassword) and (data.login, data.password) == (USER.encode(), PASSWORD.encode())
    return AuthResult(success=known, handled=False)  # aiosmtpd answers


@dataclass(frozen=True)
class Call:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Hook:
    """What a webhook was called with. `answers` are the statuses of the next calls, then 204."""

    calls: list[Call] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    port: int = 0


@contextmanager
def open_hook() -> Iterator[Hook]:
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            hook.calls.append(Call(self.path, headers, body))
            self.send_response(hook.answers.pop(0) if hook.answers else 204)
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            with suppress(BrokenPipeError):
                self.end_headers()

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook.port = server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
