"""A form is taken only from a page of ours, that was made for this browser; and every answer tells a browser so."""

from typing import Any

import psycopg

from tests.page.conftest import Insert
from tests.page.serving import OWNER_TOKEN, Browser, hidden_fields

Db = psycopg.Connection[tuple[Any, ...]]


def done(db: Db) -> Any:
    return db.execute("SELECT count(*) FROM background_audit").fetchone()


def test_a_form_without_its_word_or_with_another_ones_is_refused(
    owner: Browser, guarded: str, insert: Insert, db: Db
) -> None:
    path = f"/jobs/{insert(status='dead')}/retry"
    with Browser(guarded) as other:
        other.sign_in(OWNER_TOKEN)
        words = hidden_fields(other.get(path).text)
    for fields in ({}, {"form_token": ""}, {"form_token": "0" * 64}, {"form_token": "\u00e9"}, words):
        answer = owner.post(path, data={"reason": "because", **fields})
        assert answer.status_code == 403, fields
        assert "not of this session" in answer.text
    assert done(db) == (0,)


def test_without_sessions_a_form_is_bound_to_its_browser_too(
    browser: Browser, address: str, insert: Insert, db: Db
) -> None:
    path = f"/jobs/{insert(status='dead')}/retry"
    words = hidden_fields(browser.get(path).text)
    assert browser.get(path).headers.get("set-cookie") is None, "the secret is made once"
    with Browser(address) as other:
        assert other.post(path, data={"reason": "because", **words}).status_code == 403
    assert done(db) == (0,)
    assert browser.post(path, data={"reason": "because", **words}).status_code == 200
    assert done(db) == (1,)


def test_another_sites_form_is_refused_even_with_the_right_word(browser: Browser, insert: Insert, db: Db) -> None:
    path = f"/jobs/{insert(status='dead')}/retry"
    fields = {"reason": "because", **hidden_fields(browser.get(path).text)}
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://[::1"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": str(browser.base_url).rstrip("/"), "Sec-Fetch-Site": "cross-site"},
    ):
        answer = browser.post(path, data=fields, headers=headers)
        assert answer.status_code == 403, headers
        assert "another site" in answer.text
    assert done(db) == (0,)


def test_a_form_that_is_too_long_or_none_is_refused(browser: Browser, insert: Insert, db: Db) -> None:
    path = f"/jobs/{insert(status='dead')}/retry"
    words = hidden_fields(browser.get(path).text)
    assert browser.post(path, data={**words, "reason": "x" * 70_000}).status_code == 413
    assert browser.post(path, json={**words, "reason": "because"}).status_code == 415
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert browser.post(path, content=b"reason=%ff", headers=form).status_code == 400
    assert browser.post(path, content=b"&".join([b"a=1"] * 2_000), headers=form).status_code == 400
    assert browser.post(path, data={**words, "reason": "x" * 3_000}).status_code == 409
    assert done(db) == (0,)


def test_every_answer_tells_the_browser_what_it_may_do(browser: Browser, stranger: Browser) -> None:
    for answer in (browser.get("/"), browser.get("/nowhere"), stranger.get("/"), browser.get("/assets/nothing.css")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "same-origin"


def test_pages_hold_no_style_or_script_in_place_and_name_no_other_host(browser: Browser, insert: Insert) -> None:
    job_id = insert(status="dead")
    for path in ("/", "/jobs", f"/jobs/{job_id}", "/kinds", "/workers", "/notices", f"/jobs/{job_id}/retry"):
        html = browser.get(path).text
        assert " style=" not in html
        assert "<style" not in html
        assert " onclick=" not in html
        assert html.count("<script") == html.count('<script src="/assets/page.')
        assert "//" not in html.replace("<!doctype html>", "").replace("xmlns", ""), path
