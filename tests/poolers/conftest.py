from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pgbouncer import pgbouncer, version
from tests.worker.conftest import bench as bench  # noqa: PLC0414  (a fixture is found where its name is)

Pooled = Callable[..., str]

KEEPS_PREPARED = (1, 21)  # the first release that knows max_prepared_statements

# How sessions of the server are lent: each is a way in which a transaction may find what another one has left.
ROTATIONS: dict[str, dict[str, object]] = {
    "one session": {"default_pool_size": 1},
    "the last used first": {"default_pool_size": 2},
    "in turn": {"default_pool_size": 3, "server_round_robin": 1},
    "in turn, each cleaned": {"default_pool_size": 3, "server_round_robin": 1, "server_reset_query_always": 1},
    "keeping no prepared statement": {"default_pool_size": 3, "server_round_robin": 1, "max_prepared_statements": 0},
    "keeping prepared statements": {"default_pool_size": 3, "server_round_robin": 1, "max_prepared_statements": 200},
}


@pytest.fixture
def pooled(url: str, tmp_path: Path) -> Iterator[Pooled]:
    """Starts a pooler in transaction mode, with settings of its own, before this test's server; its URL."""
    with ExitStack() as stack:

        def start(**settings: object) -> str:
            if version() < KEEPS_PREPARED and settings.pop("max_prepared_statements", 0):
                pytest.skip(
                    f"pgbouncer {'.'.join(map(str, version()))} knows no max_prepared_statements, "
                    f"as from {'.'.join(map(str, KEEPS_PREPARED))} on"
                )
            return stack.enter_context(pgbouncer(url, tmp_path, **{"pool_mode": "transaction", **settings}))

        yield start
