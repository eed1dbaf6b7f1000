"""The page's connections: whoever says nothing makes room for whoever asks."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle


class MakesRoom(H11Protocol):
    """Of as many connections as there may be, each new one closes the one that has been without a request longest.

    uvicorn counts connections, asked on or not, and waits for a first request for ever: without this, whoever opens as
    many as there may be and is silent, or takes no answer, shuts the page for everybody.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._heard_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._heard_at = self.loop.time()
        if self.limit_concurrency is not None and len(self.connections) + 1 >= self.limit_concurrency:
            self._make_room()
        super().connection_made(transport)

    def handle_events(self) -> None:
        asked_before = self.cycle
        super().handle_events()
        if self.cycle is not asked_before:
            self._heard_at = self.loop.time()

    def _make_room(self) -> None:
        silent = [one for one in self.connections if isinstance(one, MakesRoom) and one._is_silent]
        if silent:
            longest = min(silent, key=lambda one: one._heard_at)
            self.connections.discard(longest)  # now, and not only when the loop comes to it: the next needs another one
            longest.transport.abort()

    @property
    def _is_silent(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete
