"""A notice says which installation it is of, and where to look: whatever a kind is called."""

import json
import shlex
from urllib.parse import parse_qs, urlsplit

import pytest

from supervisor.installation import Installation
from supervisor.notices.whereabouts import OfJob, OfKind, subject_of
from supervisor.testing import Kit
from tests.notices.app import DEADLY, IMPORTANT, Work
from tests.notices.conftest import APP, OWNERS, add_notice, stop_all, wait_sent
from tests.notices.post_office import Hook, PostOffice
from tests.notices.test_webhook import settings

PAGE = "https://jobs.example.org/background"
NAMED = {"WORKER_INSTALLATION": "production", "WORKER_PAGE_URL": f"{PAGE}/"}
HOSTILE = "a:b&name=c#d\r\nBcc: mallory@example.org 'x'; rm -rf ~ %0d ü<b>"


def test_a_dead_jobs_mail_names_the_installation_and_links_to_the_job(
    oomph_kit: Kit, office: PostOffice, mail: dict[str, str]
) -> None:
    oomph_kit.start(APP, **mail | NAMED)
    job_id = oomph_kit.enqueue(IMPORTANT, Work(do="fail"))
    wait_sent(oomph_kit, notices=1)
    stop_all(oomph_kit)
    told = office.to(OWNERS[0])[0]
    assert told["Subject"] == f"[oomph production] job {job_id} of the important kind important-work is dead"
    lines = told.get_content().splitlines()
    assert f"{PAGE}/jobs/{job_id}" in lines
    assert lines[-1] == f"All notices: {PAGE}/notices"


def test_a_paused_kinds_call_and_mail_link_to_the_kind(
    oomph_kit: Kit, office: PostOffice, mail: dict[str, str], hook: Hook
) -> None:
    pools = {"WORKER_POOLS": "ingest,system", "WORKER_INGEST_CONCURRENCY": "1"}
    oomph_kit.start(APP, **mail | settings(hook) | NAMED | pools)
    for _ in range(5):
        oomph_kit.enqueue(DEADLY, Work())
    wait_sent(oomph_kit, notices=1, recipients=3)
    stop_all(oomph_kit)
    assert f"{PAGE}/kind?name=deadly" in office.to(OWNERS[0])[0].get_content().splitlines()
    data = json.loads(hook.calls[0].body)["data"]
    assert (data["installation"], data["url"]) == ("production", f"{PAGE}/notices")
    assert data["notices"][0]["url"] == f"{PAGE}/kind?name=deadly"


def test_without_a_name_and_a_page_a_call_says_so(oomph_kit: Kit, hook: Hook) -> None:
    oomph_kit.start(APP, **settings(hook))
    add_notice(oomph_kit.db, event="dead-job:7:1.5")
    wait_sent(oomph_kit, notices=1, recipients=1)
    stop_all(oomph_kit)
    data = json.loads(hook.calls[0].body)["data"]
    assert (data["installation"], data["url"], data["notices"][0]["url"]) == ("", "", "")


def test_no_name_of_a_kind_breaks_out_of_a_link(
    oomph_kit: Kit, office: PostOffice, mail: dict[str, str], hook: Hook
) -> None:
    oomph_kit.start(APP, **mail | settings(hook) | NAMED)
    add_notice(oomph_kit.db, f"{HOSTILE} is paused", event=f"paused-kind:{HOSTILE}:3:7")
    wait_sent(oomph_kit, notices=1, recipients=3)
    stop_all(oomph_kit)
    told = office.to(OWNERS[0])[0]
    assert told["Bcc"] is None
    (link,) = [line for line in told.get_content().splitlines() if line.startswith(f"{PAGE}/kind")]
    for url in (link, json.loads(hook.calls[0].body)["data"]["notices"][0]["url"]):
        parts = urlsplit(url)
        assert (parts.path, parse_qs(parts.query), parts.fragment) == ("/background/kind", {"name": [HOSTILE]}, "")


def test_without_a_page_a_mail_says_how_to_resume_any_kind_in_a_shell(
    oomph_kit: Kit, office: PostOffice, mail: dict[str, str]
) -> None:
    kinds = ["a b; $(rm -rf ~) 'c':d", "two\nlines --actor mallory", "--all", "\u202eright to left"]
    oomph_kit.start(APP, **mail)
    for number, kind in enumerate(kinds):
        add_notice(oomph_kit.db, f"number {number}", event=f"dead-probe:{kind}:3:{number}")
    wait_sent(oomph_kit, notices=len(kinds))
    stop_all(oomph_kit)
    text = "\n".join(told.get_content().replace("\r\n", "\n") for told in office.to(OWNERS[0]))
    commands = [line.split("`")[1] for line in text.splitlines() if "`oomph kinds" in line]
    resume = ["oomph", "kinds", "resume", kinds[0], "--actor", "NAME"]
    assert sorted(map(shlex.split, commands)) == sorted([resume, *[["oomph", "kinds", "list"]] * 3])


def test_a_mail_of_an_undeclared_kind_links_to_it_and_does_not_say_how_to_resume_it(
    oomph_kit: Kit, office: PostOffice, mail: dict[str, str]
) -> None:
    oomph_kit.start(APP, **mail | NAMED)
    add_notice(oomph_kit.db, "nobody declared it", event="undeclared-kind:misspelt:2026-11-30")
    wait_sent(oomph_kit, notices=1)
    stop_all(oomph_kit)
    text = office.to(OWNERS[0])[0].get_content()
    assert f"{PAGE}/kind?name=misspelt" in text.splitlines()
    assert "resume" not in text


@pytest.mark.parametrize(
    ("event", "subject"),
    [
        ("paused-kind:deadly:3:7", OfKind("deadly")),
        ("dead-probe:a:b::3:7", OfKind("a:b:")),
        ("undeclared-kind:mis:spelt:2026-11-30", OfKind("mis:spelt", is_paused=False)),
        ("undeclared-kind:misspelt", None),
        ("undeclared-kind::2026-11-30", None),
        ("dead-job:12:1700000000.5", OfJob(12)),
        ("dead-job:x:1", None),
        (f"dead-job:{'9' * 5_000}:1", None),
        (f"paused-kind:{'k' * 101}:3:7", None),
        ("paused-kind::3:7", None),
        ("dead-job:\u0663:1", None),
        ("dead-job", None),
        ("paused-kind:3:7", None),
        ("lost-worker:0b51e4e9-4a0c-4d71-a6a5-5a9b8f7d7d43", None),
        ("template:0b51e4e9-4a0c-4d71-a6a5-5a9b8f7d7d43", None),
        ("", None),
    ],
)
def test_an_event_says_what_it_is_of(event: str, subject: OfKind | OfJob | None) -> None:
    assert subject_of(event) == subject


def test_a_page_may_be_the_root_of_a_host() -> None:
    page = Installation(page_url="https://jobs.example.org/")
    assert page.notices_url == "https://jobs.example.org/notices"
    assert page.job_url(7) == "https://jobs.example.org/jobs/7"
    assert Installation().kind_url("x") == ""
