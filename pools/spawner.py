"""Keeps a template alive, and asks it for children. What is known of one template is in `pools.template_hold`."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from pools.frames import Ready, Spawn
from pools.options import StartMethod
from pools.template_changes import TemplateChange, TemplateDown, TemplateUp, ignore
from pools.template_hold import LEAVE_SECONDS, SpawnFailed, Template, TemplateError

TEMPLATE_ENVIRONMENT = {
    # A BLAS or OpenMP pool of one thread per core would not survive the fork; a job may raise these for itself.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "OMP_STACKSIZE": "2M",  # of each thread of an OpenMP pool, all of which counts against the limit
    "MALLOC_ARENA_MAX": "2",  # each further arena of malloc reserves 64 MiB, which counts against RLIMIT_DATA
    "PYTHONUNBUFFERED": "1",  # what a job printed before a SIGKILL has reached the pipe
}

PING_SECONDS = (
    5.0  # between two pings of an idle template: one that was stopped or hangs is found before a job needs it
)
WAIT_SECONDS = 10.0  # for a template to be there at all; then the job goes back to the queue, for any worker
HEALTHY_SECONDS = 60.0  # one that lived so long has not failed to start
HEALTHY_BIRTHS = 10  # nor one that made so many children, whatever ended it then
MAX_BACKOFF_SECONDS = 60.0
FAILURES_TOLD = 3  # in a row: what a person has to look at, and no accident of one template
MAX_STUCK = 4  # templates that survive SIGKILL; where all do, another one would fare no better

log = logging.getLogger("oomph.ingest")


class Spawner:
    """Keeps one template alive. Children do not notice when it is replaced.

    `on_change` is called on the loop: once when templates keep failing, and once when one serves again. One that
    survives even SIGKILL is replaced as well, and nothing waits for it.
    """

    def __init__(
        self,
        spec: str,
        environment: Mapping[str, str],
        mark: int,
        method: StartMethod,
        on_change: Callable[[TemplateChange], None] = ignore,
    ) -> None:
        self._spec = spec
        self._environment = {**TEMPLATE_ENVIRONMENT, **environment}
        self._mark = mark
        self._method = method
        self._on_change = on_change
        self._is_told_down = False
        self.ready: Ready | None = None
        self.launched = 0  # templates that came up
        self._template: Template | None = None
        self._held: set[Template] = set()  # also those that survive SIGKILL
        self._up = asyncio.Event()
        self._sequence = 0
        self._keeper: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def is_up(self) -> bool:
        return self._up.is_set() and not self._is_stopping

    @property
    def pid(self) -> int | None:
        return self._template.pid if self._template is not None and not self._template.gone.is_set() else None

    @property
    def pids(self) -> set[int]:
        """Every template that is not reaped yet. Safe from any thread."""
        return {template.pid for template in tuple(self._held) if not template.is_dead}

    @property
    def is_busy(self) -> bool:
        """A child may exist whose pid we have not been told yet."""
        return self._template is not None and bool(self._template.pending)

    async def start(self) -> None:
        """Start the first template. Raises `TemplateError` where it refuses or dies."""
        template = await self._launch()
        self._keeper = asyncio.create_task(self._keep(template), name="oomph template keeper")

    async def spawn(self, mark: int, job_fd: int, output_fd: int) -> int:
        """The pid of a new child at its gate. Raises `SpawnFailed`."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._up.wait()
        except TimeoutError:
            raise SpawnFailed(f"there was no template for {WAIT_SECONDS:g} s") from None
        if self._is_stopping:
            raise SpawnFailed("the worker ends")
        assert self._template is not None
        self._sequence += 1
        return await self._template.spawn(Spawn(sequence=self._sequence, mark=mark), job_fd, output_fd)

    async def stop(self) -> None:
        """End the template and stop keeping one. Who waits for a child gets none."""
        self._is_stopping = True
        self._up.set()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for template in tuple(self._held):
            template.kill("the worker ends")
        for template in tuple(self._held):
            await template.gone.wait()
            template.let_go()

    async def _launch(self) -> Template:
        self._held = {template for template in self._held if not template.is_dead}
        if len(self._held) >= MAX_STUCK:
            raise TemplateError(f"{len(self._held)} templates survive SIGKILL ({sorted(self.pids)})")
        try:
            template = Template.launch(self._spec, self._method, self._environment, self._mark, self._up.clear)
        except OSError as error:
            raise TemplateError(f"the template could not be started: {error.strerror}") from error
        self._template = template
        self._held.add(template)
        try:
            self.ready = await template.ready()
        except TemplateError:
            await template.end(LEAVE_SECONDS, "it refused and did not exit")
            raise
        except asyncio.CancelledError:
            template.kill("its start was cancelled")
            raise
        self._up.set()
        self.launched += 1
        log.info("template up: pid %d, %.0f MB", template.pid, self.ready.rss_mb)
        if self.ready.forks_twice:
            log.info("each child costs two forks, because %s", self.ready.forks_twice)
        return template

    async def _until_gone(self, template: Template) -> None:
        """Wait for the template's end, and bring it about where it does not answer while nobody asks it for a child."""
        started = asyncio.get_running_loop().time()
        while not template.gone.is_set():
            if self._is_told_down and is_healthy(template, started):
                self._is_told_down = False
                self._on_change(TemplateUp())
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await template.gone.wait()
            except TimeoutError:
                if not template.pending and not template.killed_because:
                    self._sequence += 1
                    with suppress(SpawnFailed):
                        await template.ping(self._sequence)

    async def _keep(self, template: Template | None) -> None:
        loop = asyncio.get_running_loop()
        failures, why = 0, ""
        while True:
            started = loop.time()
            if template is not None:
                await self._until_gone(template)
            failures = 1 if template is not None and is_healthy(template, started) else failures + 1
            delay = backoff_seconds(failures)
            if template is not None:
                why = template.killed_because or "it ended by itself"
                log.error("the template (pid %d) serves no more; starting another in %g s", template.pid, delay)
            if failures >= FAILURES_TOLD and not self._is_told_down:
                self._is_told_down = True
                self._on_change(TemplateDown(failures, why))
            await asyncio.sleep(delay)
            try:
                template = await self._launch()
            except TemplateError as error:
                template, why = None, str(error)
                log.error("no template, so no ingest job can start here: %s", error)
            except Exception as error:  # whatever it is, the next try may succeed; without a keeper none would come
                template, why = None, repr(error)
                log.exception("no template, so no ingest job can start here")


def is_healthy(template: Template, started: float) -> bool:
    """Whether it has shown that it serves; `started` by the loop's clock."""
    age = asyncio.get_running_loop().time() - started
    return template.births >= HEALTHY_BIRTHS or age > HEALTHY_SECONDS


def backoff_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row: the first one costs nothing, then 1, 2, 4 ... 60 seconds."""
    return 0.0 if failures <= 1 else min(MAX_BACKOFF_SECONDS, 2.0 ** min(failures - 2, 10))
