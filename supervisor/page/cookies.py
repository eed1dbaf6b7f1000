"""Cookies of a page, which no other page's on the same host takes the place of.

A browser keeps cookies by the name of a host and not by its port: of two pages that are forwarded to `localhost`, each
would sign the other out. So the page's own name, and the port by which the browser reaches it, are in theirs.
"""

import re
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

_PORT = re.compile(r":([0-9]{1,5})\Z")


@dataclass(frozen=True, slots=True)
class CookieName:
    """What a cookie is for; the rest of its name depends on the page."""

    purpose: str

    def on(self, request: Request) -> str:
        """The cookie's whole name."""
        port = _PORT.search(request.headers.get("host", ""))
        return "_".join(filter(None, [self.purpose, page_name(request), port and port[1]]))

    def value_in(self, request: Request) -> str:
        """What the browser sent; empty where it has none."""
        return request.cookies.get(self.on(request), "")

    def give(self, request: Request, response: Response, value: str, seconds: int | None = None) -> None:
        """Set a cookie that no script reads and no other site's request carries."""
        response.set_cookie(
            self.on(request),
            value,
            max_age=seconds,
            path=request.scope.get("root_path") or "/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )


def page_name(request: Request) -> str:
    """What the page that was asked is called; may be empty."""
    return str(request.app.state.page_name)
