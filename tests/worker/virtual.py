"""An event loop whose time passes when a test says so, and a table of jobs in memory behind the store's methods."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from jobs.claim import Fence
from jobs.outcome import AttemptReport, Verdict
from jobs.store import Finished, Lost
from jobs.unavailable import DatabaseUnavailable


class VirtualLoop(asyncio.SelectorEventLoop):
    """`settle` runs what is ready, `advance` lets time pass, timer by timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def time(self) -> float:
        return self.now

    def settle(self) -> None:
        """Run callbacks until none is ready; time stands still."""
        while True:
            self.call_soon(self.stop)
            self.run_forever()
            due = [timer for timer in self._scheduled if not timer.cancelled() and timer.when() <= self.now]  # type: ignore[attr-defined]
            if not self._ready and not due:  # type: ignore[attr-defined]
                return

    def advance(self, seconds: float) -> None:
        """Let time pass; whatever becomes due runs at its own moment."""
        until = self.now + seconds
        self.settle()
        while timers := [t.when() for t in self._scheduled if not t.cancelled() and t.when() <= until]:  # type: ignore[attr-defined]
            self.now = max(self.now, min(timers))
            self.settle()
        self.now = until
        self.settle()


@dataclass
class Row:
    status: str = "queued"
    claim: int = 0
    attempt: int = 0


class Table:
    """What PostgreSQL does for `JobStore`: the fence decides. `reachable` and `answers` break the way to it."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = defaultdict(Row)
        self.applied: dict[Fence, Verdict] = {}
        self.tries: list[tuple[Fence, Verdict]] = []
        self.reachable = True
        self.answers = True

    def claim(self, job: int) -> Fence:
        row = self.rows[job]
        assert row.status == "queued"
        row.status, row.claim, row.attempt = "running", row.claim + 1, row.attempt + 1
        return Fence(job, row.claim)

    def rescue(self, claims: Iterable[Fence]) -> None:
        """Another worker settles what of these still runs, as of a worker that is lost."""
        for fence in claims:
            self._apply(fence, Verdict.WORKER_LOST)

    async def complete(self, successes: Mapping[Fence, str | None]) -> set[Fence]:
        self.tries += [(fence, Verdict.SUCCEEDED) for fence in successes]
        await self._travel()
        lost = {fence for fence in successes if not self._apply(fence, Verdict.SUCCEEDED)}
        self._answer()
        return lost

    async def finish(self, fence: Fence, report: AttemptReport, *, lock_ms: int) -> Finished | Lost:
        assert lock_ms > 0
        self.tries.append((fence, report.outcome.verdict))
        await self._travel()
        applied = self._apply(fence, report.outcome.verdict)
        self._answer()
        return Finished(self.rows[fence.id].status) if applied else Lost()

    async def status(self, fence: Fence) -> str | None:
        await self._travel()
        row = self.rows[fence.id]
        return row.status if row.claim == fence.claim else None

    async def progress(self, news: Mapping[Fence, tuple[float, str]]) -> set[Fence]:
        await self._travel()
        return {fence for fence in news if not self._holds(fence)}

    async def statuses(self, fences: Collection[Fence]) -> dict[Fence, str]:
        await self._travel()
        return {fence: self.rows[fence.id].status for fence in fences if self.rows[fence.id].claim == fence.claim}

    def _holds(self, fence: Fence) -> bool:
        row = self.rows[fence.id]
        return row.status == "running" and row.claim == fence.claim

    def _apply(self, fence: Fence, verdict: Verdict) -> bool:
        if not self._holds(fence):
            return False
        assert fence not in self.applied, "two outcomes of one claim"
        self.applied[fence] = verdict
        row = self.rows[fence.id]
        row.attempt -= not verdict.is_charged
        row.status = {Verdict.SUCCEEDED: "succeeded", Verdict.CANCELLED: "cancelled"}.get(verdict, "queued")
        return True

    async def _travel(self) -> None:
        await asyncio.sleep(0.001)
        if not self.reachable:
            raise DatabaseUnavailable("down")

    def _answer(self) -> None:
        if not self.answers:
            raise DatabaseUnavailable("the answer was lost")
