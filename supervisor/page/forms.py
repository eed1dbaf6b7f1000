"""What is sent to the page: small, from the page itself, and from whom it says.

A form carries a word that only a page made for this browser holds, and the browser says where the form stood. Either
alone would do; a client that sends a token of its own with each request needs neither, because no browser does that
for a stranger.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from supervisor.page.access import Access, Refused
from supervisor.page.cookies import CookieName
from supervisor.page.tokens import SESSION_COOKIE, Tokens

FORM_COOKIE = CookieName("oomph_form")
FORM_FIELD = "form_token"
MAX_FORM_BYTES = 64 << 10
FORM_SECONDS = 10.0  # for all of it to come: a connection that is held open is one less for the others
MAX_FORM_FIELDS = 1_100  # as many notices as a list has, and some


async def read_form(request: Request) -> Mapping[str, list[str]]:
    """The fields of a posted form. Raises `Refused`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise Refused(415, "Forms come as application/x-www-form-urlencoded.")
    body = b""
    try:
        async with asyncio.timeout(FORM_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MAX_FORM_BYTES:
                    raise Refused(413, f"The form has more than {MAX_FORM_BYTES} bytes.")
    except TimeoutError:
        raise Refused(408, f"The form did not come within {FORM_SECONDS:.0f} s. Nothing was done.") from None
    except ClientDisconnect:
        raise Refused(400, "The form did not come to its end. Nothing was done.") from None  # nobody reads this
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS, errors="strict")
    except ValueError as error:
        raise Refused(400, "The form cannot be read.") from error
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value.replace("\0", "").replace("\r\n", "\n"))
    return fields


def field(request: Request, name: str) -> str:
    """A field of the form that was sent; empty where it is not there."""
    fields: Mapping[str, list[str]] = request.state.fields
    return fields.get(name, [""])[0]


def sends_token_itself(request: Request, access: Access) -> bool:
    """Whether the client proves who it is with each request: no browser does that for a stranger's page."""
    return isinstance(access, Tokens) and request.headers.get("authorization", "").lower().startswith("bearer ")


def check_origin(request: Request) -> None:
    """Refuse what a browser sends from a page that is not ours. Raises `Refused`."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        ours = site == "same-origin"
    elif origin is not None:
        ours = _host_in(origin) == request.headers.get("host", "")
    else:
        ours = True  # not a browser of these years
    if not ours:
        raise Refused(403, "This form was sent by another site. Nothing was done.")


def _host_in(origin: str) -> str | None:
    """Host and port of an origin; None for `null`, and for what is none."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def check_form_token(request: Request, fields: Mapping[str, list[str]]) -> None:
    """Refuse a form that was not made for this browser. Raises `Refused`."""
    expected = form_token(request)
    given = fields.get(FORM_FIELD, [""])[0]
    if not expected or not hmac.compare_digest(expected.encode(), given.encode()):
        raise Refused(403, "This form is not of this session, or too old. Go back, reload the page, and send it again.")


def form_token(request: Request) -> str:
    """The word for the forms of this browser; empty where it holds no secret yet."""
    secret = SESSION_COOKIE.value_in(request) or getattr(request.state, "form_secret", None)
    secret = secret or FORM_COOKIE.value_in(request)
    return hmac.new(secret.encode(), b"oomph page form", hashlib.sha256).hexdigest() if secret else ""


def prepare_form_secret(request: Request) -> None:
    """Make sure that the answer's forms will be accepted from this browser."""
    if not SESSION_COOKIE.value_in(request) and not FORM_COOKIE.value_in(request):
        request.state.form_secret = secrets.token_urlsafe(32)


def keep_form_secret(request: Request, response: Response) -> None:
    """Give a secret that was made for this answer to the browser."""
    if secret := getattr(request.state, "form_secret", None):
        FORM_COOKIE.give(request, response, secret)
