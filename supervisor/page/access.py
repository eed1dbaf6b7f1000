"""Who looks, and what they may do."""

import inspect
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from jobs.control import MAX_ACTOR_LENGTH

# What proxies say of whom they speak for, or of themselves.
FORWARDING_HEADERS = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
)


class Role(StrEnum):
    """A viewer reads; an owner also acts."""

    VIEWER = "viewer"
    OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody who may look. `name` is what the audit will say."""

    name: str
    role: Role = Role.VIEWER

    def __post_init__(self) -> None:
        if not 1 <= len(self.name.strip()) <= MAX_ACTOR_LENGTH or "\0" in self.name:
            raise ValueError(f"an actor's name has 1 to {MAX_ACTOR_LENGTH} characters, none of them NUL")
        object.__setattr__(self, "role", Role(self.role))

    @property
    def acts(self) -> bool:
        return self.role is Role.OWNER


Authenticate = Callable[[Request], Actor | Awaitable[Actor | None] | None]


class Refused(Exception):
    """The request is answered with `status` and this message, and nothing was done."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Access(Protocol):
    """How the page knows who asks."""

    async def actor_of(self, request: Request) -> Actor | None:
        """Who asks; None for nobody that is known. Raises `Refused`."""
        ...


class ByApp:
    """A user's own `authenticate`, a coroutine function or a function, which runs in a thread."""

    def __init__(self, authenticate: Authenticate) -> None:
        self._authenticate = authenticate

    async def actor_of(self, request: Request) -> Actor | None:
        if inspect.iscoroutinefunction(self._authenticate):
            found = await self._authenticate(request)
        else:
            found = await run_in_threadpool(self._authenticate, request)
            if inspect.isawaitable(found):
                found = await found
        if found is not None and not isinstance(found, Actor):
            raise TypeError(f"authenticate returned {type(found).__name__}; it must return an Actor or None")
        return found


class ThisHost:
    """Everybody who reaches a loopback address is `actor`: whoever has an account on this host.

    The name in the request must be one of this host, or any web page could have a name of its own resolve to the
    loopback address and read along. What comes through a proxy is refused: that proxy would open the page to the world.
    """

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    async def actor_of(self, request: Request) -> Actor | None:
        if not is_loopback_name(_host_name(request)):
            raise Refused(
                403, "Without a token this page answers only under a name of this host, such as localhost or 127.0.0.1."
            )
        if _comes_through_a_proxy(request):
            raise Refused(403, "Without a token this page does not answer through a proxy: start it with --token-file.")
        return self._actor


def _comes_through_a_proxy(request: Request) -> bool:
    """Whether anything shows it.

    A proxy without settings, such as nginx, names this host and says nothing of itself: it gives itself away by a
    protocol that no browser speaks, or by what the browser says of where it is.
    """
    if request.scope.get("http_version") == "1.0" or any(name in request.headers for name in FORWARDING_HEADERS):
        return True
    if request.headers.get("sec-fetch-site") != "same-origin":  # another site may have a link to this page
        return False
    named = [request.headers[name] for name in ("origin", "referer") if name in request.headers]
    return any(not is_loopback_name(_name_in(address)) for address in named)


def is_loopback_name(host: str) -> bool:
    """Whether this is `localhost` or an address of the loopback interface. Asks no resolver."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_name(request: Request) -> str:
    return _name_in("//" + request.headers.get("host", ""))


def _name_in(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
