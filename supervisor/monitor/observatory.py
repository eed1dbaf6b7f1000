"""What a worker shows to a monitor: /metrics, /livez and /readyz. Made only where `WORKER_HTTP` asks for it."""

import time
from importlib.metadata import version

from jobs.database import Database
from jobs.task import Pool
from supervisor.monitor import catalog
from supervisor.monitor.condition import MIB, resident_bytes
from supervisor.monitor.endpoint import Answer, Endpoint
from supervisor.monitor.exposition import CONTENT_TYPE, Page
from supervisor.monitor.meter import Meter
from supervisor.monitor.meter_view import tell_meter
from supervisor.monitor.queue_view import QueueView, tell_queue
from supervisor.monitor.vitals import Vitals
from supervisor.settings import Settings, host_and_port


class Observatory:
    """One for the life of the process; opened before anything else, so that a start can be watched too."""

    def __init__(self, settings: Settings, database: Database, meter: Meter, vitals: Vitals) -> None:
        address = host_and_port(settings.worker_http)
        assert address is not None, "made only where there is one"
        self._meter = meter
        self._vitals = vitals
        self._queue = QueueView(database)
        self._version = version("oomph")
        pages = {"/metrics": self._metrics, "/livez": self._livez, "/readyz": self._readyz}
        self._endpoint = Endpoint(*address, pages)

    def open(self) -> None:
        """Listen. Raises `EndpointError`."""
        self._endpoint.open()

    async def serve_once(self) -> float:
        """Take one request; see `Endpoint.accept_once`."""
        return await self._endpoint.accept_once()

    async def close(self) -> None:
        await self._endpoint.close()
        await self._queue.stop()

    async def _livez(self) -> Answer:
        return _judged(self._vitals.why_dead(self._vitals.signs()))

    async def _readyz(self) -> Answer:
        return _judged(self._vitals.why_unready(self._vitals.signs()))

    async def _metrics(self) -> Answer:
        sample = None
        if self._vitals.parts.tenure() is not None:  # before, the database may not even be connected
            sample = await self._queue.look()
        if sample is not None and sample.clock_offset is not None:
            self._meter.clock_offset = sample.clock_offset
        page = Page()
        tell_meter(page, self._meter)
        self._tell_worker(page)
        tell_queue(page, sample)
        return Answer(page.text(), content_type=CONTENT_TYPE)

    def _tell_worker(self, page: Page) -> None:
        parts, signs = self._vitals.parts, self._vitals.signs()
        listener = parts.listener
        attempts = parts.attempts
        page.add_one(catalog.NOTIFY, None if listener is None else listener.round_trip_seconds)
        page.add_one(catalog.LEASE, signs.lease_left)
        page.add(catalog.SLOTS, [((pool,), attempts.slots(pool)) for pool in parts.pools])
        in_use = [((pool,), attempts.slots(pool) - attempts.free_slots(pool)) for pool in parts.pools]
        page.add(catalog.SLOTS_IN_USE, in_use)
        if parts.ingest is not None:
            memory_mb = parts.ingest.children_memory_mb
            label = (Pool.INGEST.value,)
            page.add(catalog.CHILDREN, [(label, parts.ingest.children)])
            page.add(catalog.CHILDREN_MEMORY, [(label, round(sum(memory_mb) * MIB))])
            page.add(catalog.LARGEST_CHILD, [(label, round(max(memory_mb, default=0.0) * MIB))])
            page.add_one(catalog.TEMPLATE_UP, int(parts.ingest.template_up))
            page.add_one(catalog.TEMPLATE_RESTARTS, parts.ingest.template_restarts)
        page.add_one(catalog.WORKER_MEMORY, resident_bytes())
        page.add_one(catalog.WORKER_CPU, time.process_time())
        page.add_one(catalog.READY, int(not self._vitals.why_unready(signs)))
        page.add(catalog.INFO, [((self._version,), 1)])


def _judged(reasons: list[str]) -> Answer:
    return Answer("\n".join(reasons or ["ok"]) + "\n", 503 if reasons else 200)
