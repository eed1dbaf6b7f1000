"""Access by tokens: `Authorization: Bearer`, or a form that exchanges one for a session.

A session is a signed cookie and nothing is kept for it, so any process that knows the token knows the session too, and
to take the token away ends it.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.requests import Request

from supervisor.page.access import Actor, Refused, Role
from supervisor.page.cookies import CookieName
from supervisor.page.patience import Patience

SESSION_COOKIE = CookieName("oomph_session")
SESSION_SECONDS = 12 * 3600  # a working day
MIN_TOKEN_LENGTH = 20  # of random characters; what is shorter is guessed some day
MAX_TOKEN_LENGTH = 200
MAX_TOKENS = 100  # each is compared for each request
MAX_SESSION_LENGTH = 500

HOW_TO_MAKE_ONE = "python3 -c 'import secrets; print(secrets.token_urlsafe(32))' makes one"


class TokenError(Exception):
    """The tokens cannot be used; the message says why, and never repeats one. Nothing was started."""


@dataclass(frozen=True, slots=True)
class _Known:
    actor: Actor
    digest: bytes
    sessions: URLSafeTimedSerializer


class Tokens:
    """The tokens of a page; in memory only what is needed to recognize them."""

    def __init__(self, known: Sequence[tuple[Actor, str]]) -> None:
        self._patience = Patience()
        self.know(known)

    def know(self, known: Sequence[tuple[Actor, str]]) -> None:
        """Know these from now on and no others, each with whose it is. A session ends with its token."""
        self._known = [
            _Known(actor, _digest("token", token), URLSafeTimedSerializer(_digest("session", token), salt="session"))
            for actor, token in known
        ]

    def look_again(self) -> None:
        """Before anybody is recognized: for tokens that may have changed since."""

    async def actor_of(self, request: Request) -> Actor | None:
        """Who asks, by the header or else by the cookie. Raises `Refused` for whoever guesses on and on."""
        self.look_again()
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._actor_of_token(token.strip(), request)
        return self._actor_of_session(SESSION_COOKIE.value_in(request))

    def actor_of_token(self, token: str, request: Request) -> Actor | None:
        """Whose token this is; a right one is always taken.

        Many clients may have one address, that of a proxy: only who is wrong is refused for what others guessed.
        Raises `Refused` for a wrong one from a client that gave too many.
        """
        self.look_again()
        return self._actor_of_token(token, request)

    def new_session(self, token: str) -> str:
        """The cookie's value for a token that is known."""
        known = self._find(token)
        assert known is not None
        return str(known.sessions.dumps(secrets.token_urlsafe(16)))

    def _actor_of_token(self, token: str, request: Request) -> Actor | None:
        known = self._find(token)
        if known is not None:
            return known.actor
        client = request.client.host if request.client else ""
        if wait := self._patience.wait(client):
            raise Refused(429, f"Too many wrong tokens came from {client}. Try again in {wait:.0f} s.")
        self._patience.wrong(client)
        return None

    def _find(self, token: str) -> _Known | None:
        digest, found = _digest("token", token[: MAX_TOKEN_LENGTH + 1]), None
        for known in self._known:  # all of them: how long it takes says nothing
            if hmac.compare_digest(known.digest, digest):
                found = known
        return found

    def _actor_of_session(self, value: str) -> Actor | None:
        if not value or len(value) > MAX_SESSION_LENGTH:
            return None
        for known in self._known:
            try:
                known.sessions.loads(value, max_age=SESSION_SECONDS)
            except BadData:
                continue
            return known.actor
        return None


def read_tokens(text: str, named: str) -> Tokens:
    """Tokens from lines of `ROLE NAME TOKEN`; `named` says where they come from. Raises `TokenError`."""
    return Tokens(tokens_in(text, named))


def tokens_in(text: str, named: str) -> list[tuple[Actor, str]]:
    """What such lines say: each token, and whose it is. Raises `TokenError`."""
    known: list[tuple[Actor, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = line.split()
        if len(parts) != 3 or parts[0] not in list(Role):
            raise TokenError(
                f"line {number} of {named} must read ROLE NAME TOKEN, such as `owner ada ...`; "
                f"roles are {' and '.join(Role)}"
            )
        role, name, token = parts
        if not MIN_TOKEN_LENGTH <= len(token) <= MAX_TOKEN_LENGTH:
            raise TokenError(
                f"the token in line {number} of {named} has {len(token)} characters; "
                f"{MIN_TOKEN_LENGTH} to {MAX_TOKEN_LENGTH} are allowed. {HOW_TO_MAKE_ONE}"
            )
        if any(hmac.compare_digest(token.encode(), other.encode()) for _, other in known):
            raise TokenError(f"line {number} of {named} repeats a token; each actor needs one of their own")
        try:
            known.append((Actor(name, Role(role)), token))
        except ValueError as error:
            raise TokenError(f"line {number} of {named}: {error}") from error
    if not 1 <= len(known) <= MAX_TOKENS:
        raise TokenError(f"{named} holds {len(known)} tokens; 1 to {MAX_TOKENS} are allowed. {HOW_TO_MAKE_ONE}")
    return known


def _digest(purpose: str, token: str) -> bytes:
    return hmac.digest(f"oomph page {purpose}".encode(), token.encode("utf-8", "surrogatepass"), hashlib.sha256)
