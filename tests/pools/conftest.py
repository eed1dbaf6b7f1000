from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pools.ingest import IngestPool
from tests.pools.handlers_app import app
from tests.pools.kitchen import SPEC, Kitchen, job_processes, until


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Kitchen]:
    """One pool for a module: jobs must not disturb each other, so sharing it is part of the test."""
    pool = IngestPool(SPEC, app, memory_mb=100, slots=4)
    await pool.start()
    yield Kitchen(pool)
    await pool.stop()
    assert job_processes() == []


@pytest_asyncio.fixture(loop_scope="module")
async def kitchen(shared: Kitchen, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Kitchen]:
    """The shared pool; afterwards no process of any job may be left, dead or alive."""
    caplog.set_level("INFO")
    shared.progress.clear()
    yield shared
    await until(lambda: job_processes(template=shared.pool._spawner.pid) == [])
    assert shared.pool.children == 0
