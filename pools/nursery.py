"""Where children are made, and where the next one waits for its job.

    make:  template forks -> pidfd -> scratch folder, cgroup leaf, baseline -> setup: the child encloses itself
    take:  the one that waits, if it has the right limit; else one that is made now

While the queue is known to hold more (`expect_more`), the next child is made while a job runs, so that a claimed job
need not wait for its birth. It is still one fresh process for each job: nothing of any job has been in it. One that no
job takes soon is ended, so that an idle worker keeps none.
"""

import asyncio
import os
from contextlib import suppress

from pools import process
from pools.frames import Setup, pack
from pools.household import Household
from pools.memory import Baseline
from pools.newborn import Newborn
from pools.options import StartMethod
from pools.template_hold import SpawnFailed

KEEP_SECONDS = 1.0  # for one that waits: many times what a claim takes, and an idle worker has none soon after
SETUP_SECONDS = 10.0  # for a child to take its setup; it does nothing else
END_SECONDS = 2.0  # for what is killed to be gone, at the end
REMOVE_SECONDS = 5.0  # for an empty folder


class Nursery:
    """Makes children for one pool, and keeps at most one that waits. Everything here happens on the loop."""

    def __init__(self, house: Household) -> None:
        self._house = house
        self._next: asyncio.Task[Newborn] | None = None
        self._limit_mb = 0  # of that one
        self._timer: asyncio.TimerHandle | None = None
        self._endings: set[asyncio.Task[None]] = set()

    def expect_more(self, limit_mb: int) -> None:
        """Have the child made that the next job will take, if this is its limit.

        Not where it must execute an interpreter: that costs too much to be done for nothing.
        """
        house = self._house
        if self._next is None and house.spawner.is_up and house.options.start_method is StartMethod.FORK:
            self._next = asyncio.create_task(self._make(limit_mb), name="oomph next child")
            self._limit_mb = limit_mb
            self._timer = asyncio.get_running_loop().call_later(KEEP_SECONDS, self._let_go)

    async def take(self, limit_mb: int) -> Newborn:
        """A child at its gate, whose end, mark and folder are the caller's. Raises `SpawnFailed`."""
        if limit_mb == self._limit_mb and (waiting := self._remove_next()) is not None:
            with suppress(SpawnFailed):  # the template may have been replaced since
                newborn = await self._result(waiting)
                if not process.is_over(newborn.pidfd):  # the loop may not have been told yet
                    return newborn
                self._end_soon(newborn)
        return await self._result(asyncio.create_task(self._make(limit_mb), name="oomph birth"))

    async def stop(self) -> None:
        """Keep none."""
        if (waiting := self._remove_next()) is not None:
            await asyncio.wait({waiting})
            self._end_when_made(waiting)
        if self._endings:
            await asyncio.wait(self._endings, timeout=END_SECONDS)

    async def _make(self, limit_mb: int) -> Newborn:
        roster = self._house.roster
        mark = roster.marks.take()
        roster.births.add(mark)
        try:
            newborn = await Newborn.born(self._house.spawner, mark)
            roster.newborns[newborn.pid] = newborn
        except BaseException:
            roster.marks.give_back(mark)
            raise
        finally:
            roster.births.discard(mark)
        try:
            await self._prepare(newborn, limit_mb)
        except BaseException:
            self._end_soon(newborn)
            raise
        return newborn

    async def _prepare(self, newborn: Newborn, limit_mb: int) -> None:
        try:
            await self._house.threads.run(self._furnish, newborn)
            async with asyncio.timeout(SETUP_SECONDS):
                await asyncio.get_running_loop().sock_sendall(newborn.gate, pack(self._setup(newborn, limit_mb)))
        except TimeoutError:
            raise SpawnFailed("the child did not take its setup") from None
        except (BrokenPipeError, ConnectionResetError):
            pass  # it is dead, and its owner will say how it came to be
        except OSError as error:
            raise SpawnFailed(f"{error.strerror} ({error.filename}), preparing a child") from error

    def _furnish(self, newborn: Newborn) -> None:
        """In a thread. The child keeps what was made, also where a later step fails."""
        house = self._house
        owner = None if house.user is None else (house.user.uid, house.user.gid)
        newborn.scratch = house.scratches.make(f"{newborn.mark:x}", owner)
        newborn.scratch_device = os.lstat(newborn.scratch.path).st_dev
        if house.leaves is not None:
            newborn.leaf = house.leaves.make(newborn.scratch.path.name, house.options.threads)
            newborn.leaf.add(newborn.pid)
        if house.options.start_method is StartMethod.FORK:
            newborn.baseline = Baseline.of(newborn.pid)

    def _setup(self, newborn: Newborn, limit_mb: int) -> Setup:
        house, options = self._house, self._house.options
        assert newborn.scratch is not None
        return Setup(
            supervisor=os.getpid(),
            scratch=str(newborn.scratch.path),
            user=house.user,
            readable=house.readable,
            writable=house.writable,
            open_files=options.open_files,
            file_mb=options.scratch_mb,
            # The kernel counts for the user, not for the job. Where that is the supervisor's own user, it would count
            # the supervisor as well.
            processes=0 if house.user is None else options.processes * house.slots,
            shm_mb=limit_mb if house.has_own_shm else 0,
        )

    async def _result(self, making: asyncio.Task[Newborn]) -> Newborn:
        """Shielded: also where nobody wants it any more, a child is owned until it is reaped."""
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            self._end_when_made(making)
            raise

    def _remove_next(self) -> asyncio.Task[Newborn] | None:
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._next, self._timer = self._next, None, None
        return waiting

    def _let_go(self) -> None:
        if (waiting := self._remove_next()) is not None:
            self._end_when_made(waiting)

    def _end_when_made(self, making: asyncio.Task[Newborn]) -> None:
        def made(task: asyncio.Task[Newborn]) -> None:
            if not task.cancelled() and task.exception() is None:
                self._end_soon(task.result())

        if making.done():
            made(making)
        else:
            making.add_done_callback(made)

    def _end_soon(self, newborn: Newborn) -> None:
        ending = asyncio.create_task(self._end(newborn), name=f"end of child {newborn.pid}")
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def _end(self, newborn: Newborn) -> None:
        await newborn.end()
        del self._house.roster.newborns[newborn.pid]
        await self._house.threads.run(self._clear, newborn)
        self._house.roster.marks.give_back(newborn.mark)

    def _clear(self, newborn: Newborn) -> None:
        """In a thread."""
        if newborn.leaf is not None:
            newborn.leaf.remove()
        if newborn.scratch is not None:
            newborn.scratch.remove(REMOVE_SECONDS)
