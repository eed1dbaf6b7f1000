"""Admission by memory: an attempt starts only when its limit fits what is free, in the order of arrival.

First come, first served, also where a later one would fit: otherwise small jobs would pass a big one for ever.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any


class MemoryBudget:
    """MiB that all attempts may hold together. Everything here happens on the loop."""

    def __init__(self, total_mb: int | None) -> None:
        self.total_mb = total_mb
        self.held_mb = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_contended(self) -> bool:
        """Somebody waits, so whoever comes now would have to wait behind."""
        return bool(self._waiting)

    def fits_ever(self, mb: int) -> bool:
        return self.total_mb is None or mb <= self.total_mb

    async def take(self, mb: int, seconds: float, stopping: Callable[[], Awaitable[object]]) -> bool:
        """Hold `mb` once they are free. False after `seconds`, or where `stopping()` is done first: nothing is held."""
        assert self.fits_ever(mb), "waits for ever"
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((mb, turn))
        self._admit()
        if turn.done():
            return True
        stop: asyncio.Future[Any] = asyncio.ensure_future(stopping())
        try:
            await asyncio.wait({turn, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._leave(mb, turn)
            raise
        finally:
            stop.cancel()
        if turn.done():
            return True
        self._leave(mb, turn)
        return False

    def give_back(self, mb: int) -> None:
        self.held_mb -= mb
        assert self.held_mb >= 0, "gave back more than was held"
        self._admit()

    def _leave(self, mb: int, turn: asyncio.Future[None]) -> None:
        if turn.done():
            self.give_back(mb)
        else:
            self._waiting.remove((mb, turn))
            self._admit()

    def _admit(self) -> None:
        while self._waiting:
            mb, turn = self._waiting[0]
            if self.total_mb is not None and self.held_mb + mb > self.total_mb:
                return
            self._waiting.popleft()
            self.held_mb += mb
            turn.set_result(None)
