"""The form that exchanges a token for a session."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from supervisor.page.desk import Desk, base_of
from supervisor.page.forms import field
from supervisor.page.tokens import SESSION_COOKIE, SESSION_SECONDS, Tokens


def ask_for_token(desk: Desk, request: Request, *, status: int = 401, back: str = "", wrong: bool = False) -> Response:
    """The form; afterwards the browser goes to `back`, a path of this page."""
    response = desk.respond(request, "sign_in.html", status=status, back=back or here(request), wrong=wrong)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


async def sign_in(desk: Desk, request: Request) -> Response:
    """Take a token. Raises `Refused`."""
    assert isinstance(desk.access, Tokens)
    token, back = field(request, "token").strip(), _own_path(field(request, "back"))
    if desk.access.actor_of_token(token, request) is None:
        return ask_for_token(desk, request, back=back, wrong=True)
    response = RedirectResponse(base_of(request) + back, 303)
    SESSION_COOKIE.give(request, response, desk.access.new_session(token), SESSION_SECONDS)
    return response


def sign_out(request: Request) -> Response:
    """Forget the session in this browser."""
    response = RedirectResponse(base_of(request) + "/", 303)
    SESSION_COOKIE.give(request, response, "", 0)
    return response


def here(request: Request) -> str:
    """The address that was asked for, below the page."""
    path = request.url.path.removeprefix(base_of(request)) or "/"
    return _own_path(path + (f"?{request.url.query}" if request.url.query else ""))


def _own_path(path: str) -> str:
    """`path`, or the front page where a browser might take it for the address of another host."""
    ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and len(path) <= 2_000
    return path if ours else "/"
