"""Of several pages, each says which it is, and none signs another out."""

import re

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from supervisor.page import Actor, JobsPage, Role, read_tokens
from supervisor.page.access import ThisHost
from tests.page.conftest import Insert
from tests.page.serving import OWNER_TOKEN, TOKENS, Browser, served


def test_each_page_bears_the_name_in_its_title_and_its_header(url: str, insert: Insert) -> None:
    job_id = insert(status="dead")
    page = JobsPage(url, authenticate=ThisHost(Actor("somebody here", Role.OWNER)), name="production")
    paths = ("/", "/jobs", f"/jobs/{job_id}", f"/jobs/{job_id}/retry", "/kinds", "/workers", "/notices", "/audit", "/x")
    with served(page) as address, Browser(address) as browser:
        for path in paths:
            shown = browser.get(path).text
            assert re.search(r"<title>.+ \u00b7 production \u00b7 Background jobs</title>", shown), path
            assert 'Background jobs <span class="installation">production</span></a>' in shown, path


def test_a_page_without_a_name_says_nothing_of_one(browser: Browser) -> None:
    shown = browser.get("/kinds").text
    assert "<title>Kinds \u00b7 Background jobs</title>" in shown
    assert "installation" not in shown


def test_two_pages_on_one_host_name_sign_nobody_out_of_the_other(url: str) -> None:
    """As where both are forwarded to localhost: a browser keeps cookies by the name of the host alone."""
    pages = [JobsPage(url, authenticate=read_tokens(TOKENS, "the tests"), name="production") for _ in range(2)]
    with served(pages[0]) as first, served(pages[1]) as second, Browser("") as browser:
        for address in (first, second):
            assert browser.post(f"{address}/sign-in", data={"token": OWNER_TOKEN, "back": "/"}).status_code == 200
        for address in (first, second):
            assert "ada, owner" in browser.get(address).text
        assert browser.post(f"{first}/sign-out", data={"go": ""}).status_code == 401
        assert "ada, owner" in browser.get(second).text


def test_two_pages_of_one_port_sign_nobody_out_of_the_other(url: str) -> None:
    """One at the root and one below it: the browser sends the cookies of the first to both."""
    of_eve = read_tokens(f"owner eve eves-{OWNER_TOKEN}", "the tests")
    pages = {
        "/staging": JobsPage(url, authenticate=of_eve, name="staging"),
        "": JobsPage(url, authenticate=read_tokens(TOKENS, "the tests"), name="production"),
    }
    app = Starlette(routes=[Mount(path, app=page) for path, page in pages.items()])
    with served(app) as address, Browser(address) as browser:
        for path, token in (("/staging", f"eves-{OWNER_TOKEN}"), ("", OWNER_TOKEN)):
            assert browser.post(f"{path}/sign-in", data={"token": token, "back": "/"}).status_code == 200
        assert "eve, owner" in browser.get("/staging/").text
        assert "ada, owner" in browser.get("/").text


@pytest.mark.parametrize("host", ["localhost:8642\r\n", "localhost:8642;x=y", "localhost:abc", "localhost:123456", "["])
def test_a_host_that_is_none_names_no_cookie(guarded: str, host: str) -> None:
    with Browser(guarded) as browser:
        answer = browser.get("/", headers={"Host": host.strip()})
        names = [cookie.partition("=")[0] for cookie in answer.headers.get_list("set-cookie")]
        assert set(names) <= {"oomph_form", "oomph_form_8642"}


def test_a_name_that_is_not_plain_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="a short name such as production"):
        JobsPage(url, authenticate=lambda _: None, name="two words")
