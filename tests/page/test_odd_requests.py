"""What no browser of a person sends, and what no row should hold, is answered in order: never as a fault of ours."""

import logging
import socket
from typing import Any

import psycopg
import pytest

from jobs.bulk import BATCH
from supervisor.page import forms
from supervisor.testing.waiting import wait_for
from tests.page.conftest import Insert
from tests.page.serving import Browser, heading, hidden_fields

Db = psycopg.Connection[tuple[Any, ...]]


@pytest.mark.parametrize("digits", [19, 30, 5_000])
def test_a_number_that_no_job_can_have_is_no_page(browser: Browser, stranger: Browser, digits: int) -> None:
    for rest in ("", "/retry", "/cancel", "/live", "/files/payload.txt"):
        assert browser.get(f"/jobs/{'9' * digits}{rest}").status_code == 404, rest
    assert stranger.get(f"/jobs/{'9' * digits}").status_code == 401


@pytest.mark.parametrize("path", ["/jobs?", "/jobs/retry?status=dead&", "/jobs/live?"])
@pytest.mark.parametrize("at", ["0001-01-01T00:00+23:59", "9999-12-31T23:59-23:59"])
def test_a_moment_in_no_year_is_refused(browser: Browser, path: str, at: str) -> None:
    answer = browser.get(f"{path}created_from={at.replace('+', '%2B')}")
    assert answer.status_code == 400
    assert "created_from is a moment" in answer.text


@pytest.mark.parametrize("name", ["%00", "a%00b", "k" * 101])
@pytest.mark.parametrize("path", ["/kind/pause", "/kind/resume", "/kind/probe", "/schedule/run"])
def test_a_name_that_nothing_can_have_is_refused(browser: Browser, path: str, name: str) -> None:
    answer = browser.submit(f"{path}?name={name}", reason="because")
    assert answer.status_code == 409
    assert "Nothing was done" in answer.text


@pytest.mark.parametrize(
    "payload",
    [
        '{"a": ' + "[" * 900 + "]" * 900 + "}",
        '{"a": ' + "[" * 5_000 + "]" * 5_000 + "}",
        '{"a": ' + "9" * 5_000 + "}",
        '{"a": 1e400}',
    ],
    ids=["deep", "deeper", "many digits", "beyond floats"],
)
def test_a_job_is_shown_whatever_its_payload_is(browser: Browser, insert: Insert, db: Db, payload: str) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool, secret_paths) VALUES ('greet', 'system', '{}')")
    job_id = insert(status="dead")
    db.execute(
        "UPDATE background_jobs SET payload = %(json)s::text::jsonb, result = %(json)s::text::jsonb WHERE id = %(id)s",
        {"json": payload, "id": job_id},
    )
    for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/files/payload.txt", f"/jobs/{job_id}/files/result.txt"):
        assert browser.get(path).status_code == 200, path
    assert browser.submit(f"/jobs/{job_id}/retry", reason="because").status_code == 200


def test_what_cannot_be_read_as_json_is_secret_where_a_field_of_it_is(browser: Browser, insert: Insert, db: Db) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool, secret_paths) VALUES ('greet', 'system', '{token}')")
    job_id = insert(status="dead")
    db.execute(
        "UPDATE background_jobs SET payload = %s::text::jsonb WHERE id = %s",
        ['{"token": "hunter2", "a": ' + "[" * 5_000 + "]" * 5_000 + "}", job_id],
    )
    assert "hunter2" not in browser.get(f"/jobs/{job_id}").text
    assert "hunter2" not in browser.get(f"/jobs/{job_id}/files/payload.txt").text


def test_a_form_that_stops_half_way_is_nobodys_fault(
    address: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, db: Db
) -> None:
    """Neither one whose browser goes away, nor one that holds its connection open and says no more."""
    host, _, port = address.removeprefix("http://").partition(":")
    begun = (
        b"POST /kind/pause?name=greet HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\n\r\nreason="
    )
    with caplog.at_level(logging.INFO):
        monkeypatch.setattr(forms, "FORM_SECONDS", 0.2)
        with socket.create_connection((host, int(port)), timeout=10) as held:
            held.sendall(begun)
            assert held.recv(100).startswith(b"HTTP/1.1 408")
        monkeypatch.setattr(forms, "FORM_SECONDS", 30)
        gone = socket.create_connection((host, int(port)), timeout=10)
        gone.sendall(begun)
        gone.shutdown(socket.SHUT_WR)
        wait_for(lambda: gone.recv(1_000) == b"", "the server closes it too", seconds=10)
        gone.close()
    assert "Traceback" not in caplog.text
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert db.execute("SELECT count(*) FROM background_audit").fetchone() == (0,)


def test_many_jobs_that_meet_a_lock_half_way_are_told_as_they_are(
    owner: Browser, insert: Insert, db: Db, url: str
) -> None:
    insert(status="dead", dedupe_key="mail 1")
    for _ in range(BATCH):
        insert(status="dead")
    with psycopg.connect(url) as other:
        other.execute(
            "INSERT INTO background_jobs (kind, pool, dedupe_key) VALUES ('greet', 'system', 'mail 1')"
        )  # and does not commit
        stopped = owner.submit("/jobs/retry?status=dead", reason="the disk is free again")
        other.rollback()
    assert stopped.status_code == 503
    assert heading(stopped.text) == f"{BATCH} jobs queued again"
    assert "somebody holds a lock" in stopped.text
    assert "Nothing was changed" not in stopped.text
    rest = owner.post("/jobs/retry?status=dead", data=hidden_fields(stopped.text))
    assert heading(rest.text) == "1 job queued again"
    assert db.execute("SELECT target FROM background_audit ORDER BY id").fetchall() == [
        (f"{BATCH} jobs",),
        ("1 jobs",),
    ]
