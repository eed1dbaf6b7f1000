"""The page in an app of somebody else's, below any path."""

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from supervisor.page import Actor, JobsPage, Role, read_tokens
from supervisor.testing.waiting import wait_for
from tests.page.conftest import Insert
from tests.page.serving import OWNER_TOKEN, TOKENS, Browser, hidden_fields, served

ROOT = Path(__file__).parents[2]


def carla(_: object) -> Actor:
    return Actor("carla", Role.OWNER)


def in_starlette(page: JobsPage) -> Any:
    async def hello(_: object) -> PlainTextResponse:
        return PlainTextResponse("hello")

    return Starlette(routes=[Route("/hello", hello), Mount("/internal/background", app=page)])


def in_fastapi(page: JobsPage) -> Any:
    app = FastAPI()

    @app.get("/hello")
    async def hello() -> str:
        return "hello"

    app.mount("/internal/background", page)
    return app


@pytest.mark.parametrize("mounted", [in_starlette, in_fastapi])
def test_it_works_below_any_path(url: str, insert: Insert, mounted: Any) -> None:
    job_id = insert(status="dead")
    app = mounted(JobsPage(url, authenticate=carla))
    with served(app) as address, Browser(address) as browser:
        assert browser.get("/hello").status_code == 200
        page = browser.get("/internal/background")
        assert page.status_code == 200
        addresses = set(re.findall(r'(?:href|src|action|data-stream)="([^"#]+)"', page.text))
        assert all(each.startswith("/internal/background/") for each in addresses), addresses
        for each in addresses - {"/internal/background/live"}:
            assert browser.get(each).status_code == 200, each
        done = browser.submit(f"/internal/background/jobs/{job_id}/retry", reason="because")
        assert done.url.path == f"/internal/background/jobs/{job_id}"
        assert "queued again" in done.text
        with browser.stream("GET", "/internal/background/jobs/live") as stream:
            assert stream.status_code == 200
            assert any(f'href=\\"/internal/background/jobs/{job_id}\\"' in line for line in stream.iter_lines())


def test_a_session_below_a_path_is_sent_only_there(url: str) -> None:
    app = in_starlette(JobsPage(url, authenticate=read_tokens(TOKENS, "the tests")))
    with served(app) as address, Browser(address) as browser:
        shown = browser.get("/internal/background/kinds")
        assert shown.status_code == 401
        fields = hidden_fields(shown.text)
        assert fields["back"] == "/kinds"
        answer = browser.post("/internal/background/sign-in", data={**fields, "token": OWNER_TOKEN})
        assert answer.url.path == "/internal/background/kinds"
        assert "Path=/internal/background" in answer.history[0].headers["set-cookie"]


def test_behind_a_proxy_that_speaks_tls_the_cookie_is_secure(url: str) -> None:
    page = JobsPage(url, authenticate=read_tokens(TOKENS, "the tests"))
    with served(page, root_path="/ops") as address, Browser(address) as browser:
        answer = browser.post(  # the proxy has taken its path away
            "/sign-in",
            data={"token": OWNER_TOKEN, "back": "/"},
            headers={"X-Forwarded-Proto": "https"},
            follow_redirects=False,
        )
        assert answer.status_code == 303
        assert answer.headers["location"] == "/ops/"
        assert "Secure" in answer.headers["set-cookie"]


def test_the_sample_mounts_it_and_closes_it(
    url: str, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = re.search(r"```python\n# web.py\n(.*?)```", (ROOT / "docs" / "how-to" / "page.md").read_text(), re.DOTALL)
    assert found is not None
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("SESSION_KEY", "of the tests")
    names: dict[str, Any] = {}
    exec(compile(found[1], "web.py", "exec"), names)

    def sign_in(request: Request) -> str:
        request.session["user"] = "ada"
        return "welcome"

    names["app"].get("/own-sign-in")(sign_in)
    with served(names["app"]) as address, Browser(address) as browser:
        assert browser.get("/background/").status_code == 401
        browser.get("/own-sign-in")
        assert "ada, owner" in browser.get("/background/").text
        assert connections(db) > 0
    wait_for(lambda: connections(db) == 0, "the end of the page's connections, with the app", 10)


def connections(db: psycopg.Connection[Any]) -> int:
    named = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oomph page' AND datname = %s"
    found = db.execute(named, [db.info.dbname]).fetchone()
    assert found is not None
    return int(found[0])


def test_who_asks_has_to_be_known(url: str) -> None:
    with pytest.raises(TypeError):
        JobsPage(url)  # type: ignore[call-arg]
