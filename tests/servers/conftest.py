from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jobs.migrate import migrate
from tests.servers.cluster import Cluster, new_cluster
from tests.servers.guests import Guests


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A migrated server of this test's own, which it may break."""
    with new_cluster() as started:
        migrate(started.url)
        yield started


@pytest.fixture
def guests(cluster: Cluster, tmp_path: Path) -> Iterator[Guests]:
    with ExitStack() as stack:
        yield Guests(cluster.url, tmp_path, stack)
