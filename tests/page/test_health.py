"""The health of the page's process: asked by anybody, about nothing else, at next to no cost."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from supervisor.page.health import SHARED_SECONDS, Health
from supervisor.page.reading import PageDatabase, Session
from supervisor.testing.waiting import wait_for
from tests.page.serving import TOKENS, Browser
from tests.page.test_page_command import OOMPH, address_of, running
from tests.proxy import Proxy


def told(address: str, path: str) -> tuple[int, str]:
    answer = httpx.get(f"{address}{path}", timeout=10)
    return answer.status_code, answer.text


@pytest.mark.parametrize("arguments", [(), ("--path", "/internal/jobs")])
@pytest.mark.parametrize("tokens", [TOKENS.replace("\n", ","), ""])
def test_it_is_told_without_a_token_and_follows_the_database(url: str, tokens: str, arguments: tuple[str, ...]) -> None:
    with Proxy(url) as proxy:
        given = {"DATABASE_URL": proxy.url, "OOMPH_PAGE_TOKENS": tokens}
        with running(*OOMPH, "page", "--port", "0", *arguments, **given) as process:
            address = address_of(process).removesuffix("/internal/jobs")
            assert httpx.get(address, headers={"Host": "page.oomph:80"}).status_code == (401 if tokens else 403)
            asked = httpx.get(f"{address}/readyz", headers={"Host": "10.0.0.7:8642", "Via": "1.1 balancer"}, timeout=10)
            assert (asked.status_code, asked.text) == (200, "ok\n")
            for away in (proxy.cut, proxy.freeze):
                away()
                wait_for(lambda: told(address, "/readyz") == (503, "unready\n"), "an unready page", 10)
                assert told(address, "/livez") == (200, "ok\n")
                proxy.heal()
                wait_for(lambda: told(address, "/readyz") == (200, "ok\n"), "a page that is ready again", 30)


def test_nothing_can_be_sent_to_it(url: str, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKENS)
    with running(*OOMPH, "page", "--port", "0", "--token-file", str(tmp_path / "tokens"), DATABASE_URL=url) as process:
        address = address_of(process)
        for path in ("/livez", "/readyz"):
            assert httpx.post(f"{address}{path}").status_code == 405
            assert httpx.head(f"{address}{path}").status_code == 200
            assert httpx.get(f"{address}{path}").headers["Cache-Control"] == "no-store"


class Counted(PageDatabase):
    """Knows how often it was looked at."""

    looks = 0

    @asynccontextmanager
    async def look(self) -> AsyncIterator[Session]:
        self.looks += 1
        async with super().look() as session:
            yield session


async def test_however_many_ask_the_database_is_asked_once_a_second(url: str) -> None:
    database = Counted(url)
    health = Health(database)
    began = time.monotonic()
    for _ in range(20):
        assert all(await asyncio.gather(*(health.is_ready() for _ in range(100))))
    assert database.looks <= 1 + (time.monotonic() - began) / SHARED_SECONDS
    await database.close()


async def becomes(health: Health, *, ready: bool) -> None:
    async with asyncio.timeout(30):
        while await health.is_ready() != ready:  # noqa: ASYNC110  (it happens in another process, which tells nobody)
            await asyncio.sleep(0.05)


async def test_a_database_that_answers_late_is_asked_by_one_at_a_time(url: str) -> None:
    with Proxy(url) as proxy:
        database = Counted(proxy.url)
        health = Health(database)
        assert await health.is_ready()
        proxy.freeze()
        await becomes(health, ready=False)
        before = database.looks
        assert not any(await asyncio.gather(*(health.is_ready() for _ in range(100))))
        assert database.looks <= before + 1
        proxy.heal()
        await becomes(health, ready=True)
        await database.close()


def test_an_app_that_holds_the_page_has_a_health_of_its_own(stranger: Browser) -> None:
    assert stranger.get("/livez").status_code == 401
    assert stranger.get("/readyz").status_code == 401
