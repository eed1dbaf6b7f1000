"""What SMTP_URL says: where mail is handed in, and how it is kept from others on the way. Pure."""

from dataclasses import dataclass, field
from email.errors import MessageError
from email.headerregistry import Address
from enum import Enum
from urllib.parse import unquote, urlsplit

from jobs.notices import MAX_RECIPIENT_LENGTH

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
HOW = (
    "must read like smtps://user:password@host:465 or smtp://user:password@host:587?starttls, with %XX for what a URL "
    "keeps for itself; without TLS, smtp://localhost:25, only to this host"
)


class Security(Enum):
    """How the way to the server is encrypted."""

    TLS = 465  # from the first byte; the value is the usual port
    STARTTLS = 587  # or nothing is sent
    NONE = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """Where mail is handed in. Without a user, nobody logs in."""

    host: str
    port: int
    security: Security
    user: str = ""
    password: str = field(default="", repr=False)


def parse_smtp_url(url: str) -> MailServer:
    """Raises `ValueError` for what is none; the message does not quote it, because it may hold a password."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise ValueError(f"SMTP_URL {HOW}") from None
    match parts.scheme, parts.query:
        case "smtps", "":
            security = Security.TLS
        case "smtp", "starttls":
            security = Security.STARTTLS
        case "smtp", "" if host in LOOPBACK:
            security = Security.NONE
        case _:
            raise ValueError(f"SMTP_URL {HOW}")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if not host or port == 0 or parts.path not in ("", "/") or parts.fragment or bool(user) != bool(password):
        raise ValueError(f"SMTP_URL {HOW}")
    return MailServer(host=host, port=port or security.value, security=security, user=user, password=password)


def is_address(text: str) -> bool:
    """Whether this is one plain e-mail address."""
    try:
        parsed = Address(addr_spec=text)
    except (MessageError, ValueError, IndexError):
        return False
    is_whole = parsed.addr_spec == text and bool(parsed.username and parsed.domain)
    return is_whole and text.isascii() and text.isprintable() and len(text) <= MAX_RECIPIENT_LENGTH


def check_address(variable: str, address: str) -> None:
    """Raise `ValueError` unless this is one plain e-mail address."""
    if not is_address(address):
        raise ValueError(
            f"{variable}={address!r}: an e-mail address such as ada@example.org is allowed, in ASCII (xn--... for "
            "other domains)"
        )
