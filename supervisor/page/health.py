"""What whoever starts the page's process asks it, without a token: whether it lives, and whether it can show anything.

    /livez     200 `ok`, from a process that answers
    /readyz    200 `ok` where the database answers within `ANSWER_SECONDS`; else 503 `unready`

Nothing else is told, and the database is asked at most once at a time and once in `SHARED_SECONDS`, however many ask.
"""

import asyncio
import logging

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from jobs.unavailable import DatabaseUnavailable
from supervisor.page.reading import PageDatabase

ANSWER_SECONDS = 1.0
SHARED_SECONDS = 1.0

log = logging.getLogger("oomph.page")


class Health:
    """The health of a process that shows this database."""

    def __init__(self, database: PageDatabase) -> None:
        self._database = database
        self._asking: asyncio.Task[bool] | None = None
        self._until = 0.0  # by the loop's clock; what comes later is no answer

    def routes(self) -> list[Route]:
        return [Route("/livez", self._livez), Route("/readyz", self._readyz)]

    async def is_ready(self) -> bool:
        """Whether the database answered in time, now or a moment ago."""
        loop = asyncio.get_running_loop()
        if self._asking is None:
            self._until = loop.time() + ANSWER_SECONDS
            self._asking = asyncio.create_task(self._ask(), name="oomph page readiness")
            self._asking.add_done_callback(lambda _: loop.call_later(SHARED_SECONDS, self._forget))
        asking = self._asking
        # Left to go on where it is late, within the bounds of every look: to end it would take the database, too.
        await asyncio.wait({asking}, timeout=max(0.0, self._until - loop.time()))
        return asking.done() and not asking.cancelled() and asking.result()

    async def _ask(self) -> bool:
        """Raises nothing."""
        until = self._until
        try:
            async with self._database.look():
                pass
        except DatabaseUnavailable as error:
            log.info("not ready: the database does not answer: %s", error)
            return False
        except Exception:
            log.exception("not ready")
            return False
        return asyncio.get_running_loop().time() <= until

    def _forget(self) -> None:
        self._asking = None

    async def _livez(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, _: Request) -> Response:
        return PlainTextResponse("ok\n") if await self.is_ready() else PlainTextResponse("unready\n", 503)
