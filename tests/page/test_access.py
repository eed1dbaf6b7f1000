"""Who may look and who may act; everybody else is refused, and nothing is done."""

import socket
from collections.abc import Callable
from typing import Any

import httpx
import psycopg
import pytest
from starlette.requests import Request

from supervisor.page import Actor, JobsPage, Role, TokenError, read_tokens
from supervisor.page.patience import WRONG_ONES
from tests.page.conftest import Insert
from tests.page.serving import OWNER_TOKEN, TOKENS, VIEWER_TOKEN, Browser, heading, served

VIEWS = ["/", "/jobs", "/kinds", "/schedules", "/workers", "/notices", "/audit"]


def test_without_a_token_nothing_is_shown(stranger: Browser) -> None:
    for path in [*VIEWS, "/live", "/jobs/1", "/jobs/1/files/payload.txt", "/nowhere"]:
        answer = stranger.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert heading(answer.text) == "Sign in"


def test_without_a_token_nothing_is_done(
    stranger: Browser, insert: Insert, db: psycopg.Connection[tuple[Any, ...]]
) -> None:
    job_id = insert(status="dead")
    for path in (f"/jobs/{job_id}/retry", "/kind/pause?name=greet", "/notices/read", "/jobs/retry?status=dead"):
        assert stranger.post(path, data={"reason": "because"}).status_code == 401, path
    assert db.execute("SELECT count(*) FROM background_audit").fetchone() == (0,)


def test_a_wrong_token_is_refused_in_the_form_and_in_the_header(stranger: Browser) -> None:
    answer = stranger.sign_in("wrong-token-of-the-tests-0123456789")
    assert answer.status_code == 401
    assert "This token is not known." in answer.text
    assert stranger.session_cookie not in stranger.cookies
    assert stranger.get("/", headers={"Authorization": f"Bearer {OWNER_TOKEN}x"}).status_code == 401
    assert stranger.get("/", headers={"Authorization": f"Basic {OWNER_TOKEN}"}).status_code == 401


def test_a_token_opens_a_session_and_signing_out_ends_it(stranger: Browser) -> None:
    answer = stranger.sign_in(OWNER_TOKEN)
    assert answer.status_code == 200
    assert str(answer.url).endswith("/jobs")
    (set_cookie,) = answer.history[0].headers.get_list("set-cookie")
    assert "HttpOnly" in set_cookie
    assert "SameSite=strict" in set_cookie
    assert "Secure" not in set_cookie
    assert OWNER_TOKEN not in set_cookie
    assert "ada, owner" in stranger.get("/").text
    signed_out = stranger.post("/sign-out", data={"go": ""})
    assert signed_out.status_code == 401
    assert stranger.get("/").status_code == 401


def test_a_session_that_was_changed_is_none(owner: Browser) -> None:
    session = owner.cookies[owner.session_cookie]
    with Browser(str(owner.base_url)) as other:
        other.cookies.set(other.session_cookie, session)
        assert other.get("/").status_code == 200
        other.cookies.set(other.session_cookie, session[:-2] + ("AA" if not session.endswith("AA") else "BB"))
        assert other.get("/").status_code == 401


def test_who_loses_the_token_loses_the_session(url: str, owner: Browser) -> None:
    session = owner.cookies[owner.session_cookie]
    others = read_tokens("owner eve another-token-of-the-tests-0123456789", "the tests")
    with served(JobsPage(url, authenticate=others)) as address, Browser(address) as browser:
        browser.cookies.set(browser.session_cookie, session)
        assert browser.get("/").status_code == 401


def test_a_viewer_sees_everything_and_may_do_nothing(
    guarded: str, insert: Insert, db: psycopg.Connection[tuple[Any, ...]]
) -> None:
    job_id = insert(status="dead")
    with Browser(guarded) as viewer:
        viewer.sign_in(VIEWER_TOKEN)
        for path in [*VIEWS, f"/jobs/{job_id}"]:
            answer = viewer.get(path)
            assert answer.status_code == 200
            assert "Retry…" not in answer.text
        for path in (f"/jobs/{job_id}/retry", "/jobs/retry?status=dead", "/kind/pause?name=greet", "/notices/read"):
            answer = viewer.post(path, data={"reason": "because", "which": "all"})
            assert answer.status_code == 403
            assert "ben may look, but not act" in answer.text
        assert viewer.get(f"/jobs/{job_id}/retry").status_code == 403
    assert db.execute("SELECT count(*) FROM background_audit").fetchone() == (0,)


def test_a_program_acts_with_its_token_alone(guarded: str, insert: Insert, db: psycopg.Connection[Any]) -> None:
    job_id = insert(status="dead")
    answer = httpx.post(
        f"{guarded}/jobs/{job_id}/retry",
        data={"reason": "asked for"},
        headers={"Authorization": f"Bearer {OWNER_TOKEN}"},
    )
    assert answer.status_code == 303
    assert db.execute("SELECT actor, action, reason FROM background_audit").fetchall() == [
        ("ada", "retry", "asked for")
    ]


def test_who_guesses_is_refused_and_who_knows_is_not(stranger: Browser) -> None:
    """Behind a proxy both have the same address."""
    wrong = "wrong-token-of-the-tests-0123456789"
    for _ in range(WRONG_ONES):
        assert stranger.sign_in(wrong).status_code == 401
    answer = stranger.sign_in(wrong)
    assert answer.status_code == 429
    assert "Too many wrong tokens" in answer.text
    assert stranger.get("/", headers={"Authorization": f"Bearer {wrong}"}).status_code == 429
    assert stranger.get("/", headers={"Authorization": f"Bearer {OWNER_TOKEN}"}).status_code == 200
    assert stranger.sign_in(OWNER_TOKEN).status_code == 200
    assert stranger.sign_in(wrong).status_code == 429


def test_only_the_page_itself_is_gone_back_to(stranger: Browser) -> None:
    for back in ("//evil.example/", "/\\evil.example", "https://evil.example/", "/\tjobs"):
        answer = stranger.post("/sign-in", data={"token": OWNER_TOKEN, "back": back}, follow_redirects=False)
        assert answer.headers["location"] == "/"


def test_without_tokens_only_this_host_is_answered_under_its_own_names(browser: Browser) -> None:
    """Or a web page anywhere could have its own name resolve to 127.0.0.1, and a proxy could open the page to all."""
    for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:80", "", "[::1"):
        assert browser.get("/", headers={"Host": host}).status_code == 403, host
    for host in ("localhost", "localhost:9999", "127.0.0.1:1", "[::1]:80", "127.8.8.8"):
        assert browser.get("/", headers={"Host": host}).status_code == 200, host
    through_proxy = browser.get("/", headers={"X-Forwarded-For": "203.0.113.7"})
    assert through_proxy.status_code == 403
    assert "--token-file" in through_proxy.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Via": "1.1 front"},
        {"X-Forwarded-Proto": "https"},
        {"Sec-Fetch-Site": "same-origin", "Referer": "https://jobs.example/jobs"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://jobs.example"},
    ],
)
def test_a_proxy_that_keeps_silent_gives_itself_away(browser: Browser, headers: dict[str, str]) -> None:
    """As nginx does, which without settings names the page's own address and nobody for whom it asks."""
    assert "--token-file" in browser.get("/", headers=headers).text
    ours = {"Sec-Fetch-Site": "same-origin", "Referer": "http://localhost:8642/jobs"}
    assert browser.get("/", headers=ours).status_code == 200
    link = {"Sec-Fetch-Site": "cross-site", "Referer": "https://chat.example/"}
    assert browser.get("/", headers=link).status_code == 200


def test_what_no_browser_speaks_comes_from_a_proxy(address: str) -> None:
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\nHost: 127.0.0.1:8642\r\nConnection: close\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 403")


def nobody(_: Request) -> None:
    return None


def by_header(request: Request) -> Actor | None:
    name = request.headers.get("x-user")
    return Actor(name, Role.OWNER) if name else None


async def by_header_later(request: Request) -> Actor | None:
    return by_header(request)


@pytest.mark.parametrize("authenticate", [by_header, by_header_later])
def test_an_app_says_itself_who_asks(url: str, authenticate: Callable[[Request], Any]) -> None:
    with served(JobsPage(url, authenticate=authenticate)) as address, Browser(address) as browser:
        refused = browser.get("/")
        assert refused.status_code == 401
        assert "Sign in to the app" in refused.text
        browser.headers["X-User"] = "carla"
        assert "carla, owner" in browser.get("/").text
        done = browser.submit("/kind/pause?name=greet", reason="because")
        assert "The kind is paused." in done.text
        assert "by carla" in done.text


def test_what_authenticate_must_return_is_said(url: str) -> None:
    page = JobsPage(url, authenticate=lambda _: "carla")  # type: ignore[arg-type, return-value]
    with served(page) as address, Browser(address) as browser:
        assert browser.get("/").status_code == 500


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds 0 tokens"),
        ("# nobody\n\n", "holds 0 tokens"),
        ("owner ada", "line 1 of FILE must read ROLE NAME TOKEN"),
        ("admin ada " + "t" * 30, "must read ROLE NAME TOKEN"),
        ("owner ada short", "has 5 characters"),
        ("owner ada " + "t" * 300, "has 300 characters"),
        (TOKENS + f"viewer eve {OWNER_TOKEN}", "line 3 of FILE repeats a token"),
        ("owner " + "a" * 201 + " " + "t" * 30, "an actor's name has 1 to 200 characters"),
    ],
)
def test_tokens_that_cannot_be_meant_are_refused_without_repeating_them(text: str, why: str) -> None:
    with pytest.raises(TokenError) as caught:
        read_tokens(text, "FILE")
    assert why in str(caught.value)
    assert OWNER_TOKEN not in str(caught.value)
    assert "ttt" not in str(caught.value)
