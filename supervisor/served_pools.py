"""The pools that one worker serves, as its settings say."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from jobs.app import App
from jobs.task import Pool
from pools.execution import JobPool
from pools.loop import LoopPool
from pools.template_changes import TemplateChange
from supervisor.settings import Settings

if TYPE_CHECKING:
    from pools.ingest import IngestPool


class ServedPools:
    """`on_template` hears of the template of `ingest`, which is None where that pool is not served."""

    def __init__(self, settings: Settings, app: App, *, on_template: Callable[[TemplateChange], None]) -> None:
        self._settings = settings
        self.ingest: IngestPool | None = None
        self.by_name: dict[Pool, JobPool] = {}
        for pool in settings.worker_pools:
            if pool is Pool.INGEST:
                self.by_name[pool] = self.ingest = _ingest(settings, app, on_template)
            else:
                self.by_name[pool] = LoopPool()
        self.slots = {pool: settings.concurrency(pool) for pool in self.by_name}

    async def start(self) -> None:
        """Raises `SettingsError` where a child may use less memory than its template does."""
        for pool in self.by_name.values():
            await pool.start()
        if self.ingest is not None and self.ingest.template_mb is not None:
            from supervisor.sizing import check_template

            check_template(self._settings.worker_ingest_memory_mb, self.ingest.template_mb)

    async def stop(self) -> None:
        for pool in self.by_name.values():
            await pool.stop()

    def is_ready(self, pool: Pool) -> bool:
        """Whether a job that is claimed for it now could start."""
        return pool is not Pool.INGEST or self.ingest is None or self.ingest.can_start

    def kill_children(self) -> None:
        """At once, from any thread."""
        if self.ingest is not None:
            self.ingest.kill_everything()


def _ingest(settings: Settings, app: App, on_template: Callable[[TemplateChange], None]) -> "IngestPool":
    from pools.ingest import IngestPool  # most of `pools`, which a worker without children never needs
    from supervisor.sizing import ingest_options

    return IngestPool(
        settings.worker_app,
        app,
        memory_mb=settings.worker_ingest_memory_mb,
        slots=settings.worker_ingest_concurrency,
        options=ingest_options(settings),
        on_template=on_template,
    )
