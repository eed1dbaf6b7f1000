"""A page on a real socket, and a client that looks at it as a browser or a program does."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from supervisor.testing.waiting import wait_for

OWNER_TOKEN = "owner-token-of-the-tests-0123456789"
VIEWER_TOKEN = "viewer-token-of-the-tests-0123456789"
TOKENS = f"owner ada {OWNER_TOKEN}\nviewer ben {VIEWER_TOKEN}\n"


@contextmanager
def served(app: Any, **options: Any) -> Iterator[str]:
    """Serve `app` on a free port of this host, in a thread; gives its address, without a slash at the end."""
    config = uvicorn.Config(
        app, port=0, log_config=None, ws="none", timeout_graceful_shutdown=1, **{"lifespan": "on", **options}
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="page of a test")
    thread.start()
    try:
        wait_for(lambda: server.started, "the server listens", seconds=10)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=15)
        assert not thread.is_alive(), "the server does not end"


class Browser(httpx.Client):
    """Keeps cookies and follows redirects; sends forms as a browser does, with what the page put into them."""

    def __init__(self, address: str) -> None:
        super().__init__(base_url=address, follow_redirects=True, timeout=10)

    def sign_in(self, token: str) -> httpx.Response:
        return self.post("/sign-in", data={"token": token, "back": "/jobs"})

    @property
    def session_cookie(self) -> str:
        """The name under which this page keeps a session."""
        return f"oomph_session_{self.base_url.port}"

    def submit(self, path: str, **fields: str) -> httpx.Response:
        """Open the form at `path`, fill it in and send it, from where it stands."""
        shown = self.get(path)
        assert shown.status_code == 200, shown.text
        return self.post(
            path,
            data={**hidden_fields(shown.text), **fields},
            headers={"Origin": str(self.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"},
        )


def hidden_fields(html: str) -> dict[str, str]:
    """What the forms of a page carry."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', html))


def heading(html: str) -> str:
    found = re.search(r"<h1>(.*?)</h1>", html, re.DOTALL)
    assert found is not None, html
    return found[1].strip()
