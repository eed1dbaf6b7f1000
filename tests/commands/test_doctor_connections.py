"""`oomph doctor` where the way to the database is no plain connection: real poolers, a network that falls silent."""

import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.doctor import database as readings
from supervisor.doctor.database import examine_database
from supervisor.errors import CommandError
from supervisor.settings import Settings
from supervisor.target import Target
from tests.commands.conftest import Oomph
from tests.commands.doctored import OF_THE_DATABASE, findings
from tests.pgbouncer import pgbouncer
from tests.proxy import Proxy


async def test_a_database_that_falls_silent_is_given_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "ANSWER_SECONDS", 0.5)
    started = time.monotonic()
    with Proxy(url) as proxy:
        found = []
        async for finding in examine_database(Target(proxy.url, "--database"), Settings()):
            found.append(finding)
            proxy.freeze()
    assert {finding.name for finding in found} == OF_THE_DATABASE
    silent = {finding.name: finding.found for finding in found[4:]}
    assert silent["migrations"] == "left out: TimeoutError: the database did not answer within 0.5 s"
    assert all(told.startswith("left out: ") for told in silent.values()), silent
    assert time.monotonic() - started < 30  # the driver waits for its own cancel request, and for what that does


async def test_a_database_that_is_silent_from_the_start_is_said_to_be(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "CONNECT_SECONDS", 0.25)
    with Proxy(url) as proxy:
        proxy.freeze()
        with pytest.raises(CommandError, match="does not answer"):
            async for _ in examine_database(Target(proxy.url, "--database"), Settings()):
                pass


@pytest.mark.parametrize(
    "settings",
    [{"default_pool_size": 1}, {"default_pool_size": 5}, {"default_pool_size": 5, "server_round_robin": 1}],
    ids=["one session", "the last used first", "in turn"],
)
def test_a_pooler_in_transaction_mode_is_recognised(
    anywhere: Oomph, url: str, tmp_path: Path, settings: dict[str, Any]
) -> None:
    with pgbouncer(url, tmp_path, pool_mode="transaction", **settings) as pooled:
        found = findings(anywhere("doctor", "--json", "--database", pooled, WORKER_POOLS="agent"))
        assert "transaction mode" in found["pooler"]["found"]
        assert found["NOTIFY"]["found"] == "not heard behind that pooler"
        assert {found[name]["level"] for name in OF_THE_DATABASE - {"pooler", "NOTIFY"}} == {"ok"}
        elsewhere = {"WORKER_POOLS": "agent", "WORKER_LISTEN_URL": url}
        found = findings(anywhere("doctor", "--json", "--database", pooled, **elsewhere))
        assert {found[name]["level"] for name in OF_THE_DATABASE} == {"ok"}


def test_a_pooler_in_session_mode_is_no_obstacle(anywhere: Oomph, url: str, tmp_path: Path) -> None:
    with pgbouncer(url, tmp_path, pool_mode="session", default_pool_size=5) as pooled:
        found = findings(anywhere("doctor", "--json", "--database", pooled, WORKER_POOLS="agent"))
        assert "session mode" in found["pooler"]["found"]
        assert {found[name]["level"] for name in OF_THE_DATABASE} == {"ok"}


def test_a_pooler_in_statement_mode_is_refused(anywhere: Oomph, url: str, tmp_path: Path) -> None:
    with pgbouncer(url, tmp_path, pool_mode="statement") as pooled:
        found = findings(anywhere("doctor", "--json", "--database", pooled, WORKER_POOLS="agent"), status=1)
        assert "statement pooling mode" in found["database"]["found"]
