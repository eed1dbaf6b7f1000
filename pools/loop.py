"""The pools `agent` and `system`: jobs on the supervisor's own loop.

A coroutine is cancelled where it must end. A plain function runs in a thread of its own; Python cannot stop a thread,
so one that must end is disowned: its report is written, its outcome is ignored, and its slot stays closed until it
returns.
"""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from jobs.context import BoundContext, LeaseLost, result_json
from jobs.outcome import (
    AttemptReport,
    Cancelled,
    Died,
    Failed,
    JobError,
    Outcome,
    Returned,
    Snoozed,
    Succeeded,
    Verdict,
)
from jobs.task import PermanentError, Snooze
from pools.errors import describe, invalid_payload
from pools.execution import Execution, Intent

log = logging.getLogger("oomph.loop")

CANCEL_GRACE = 5.0  # seconds that a cancelled coroutine has for its own clean-up before it is disowned


class LoopPool:
    """Runs attempts as tasks of the running loop."""

    async def start(self) -> None:
        """Nothing to prepare."""

    async def stop(self) -> None:
        """Nothing to release: whoever runs attempts waits for them."""

    async def run(self, execution: Execution) -> AttemptReport:
        """Run one attempt to its report. Never raises for what a job does."""
        job, task = execution.job, execution.handler.task
        try:
            payload = task.payload_type.model_validate_json(job.payload)
        except ValidationError as error:
            return AttemptReport(Failed(invalid_payload(error), permanent=True))
        except BaseException as error:  # noqa: BLE001  (a validator of the user's may raise anything, also SystemExit)
            return AttemptReport(Failed(describe(error), permanent=True))
        context = BoundContext(
            job.id, job.claim, job.attempt, job.organization_id, datetime.now(UTC) + job.timeout, execution.publish
        )
        arguments = (payload, context) if execution.handler.takes_context else (payload,)
        started: _Coroutine | _Thread = (
            _Coroutine(execution.handler.function(*arguments))  # type: ignore[arg-type]
            if execution.handler.is_async
            else _Thread(execution, arguments)
        )
        deadline = asyncio.get_running_loop().call_later(job.timeout.total_seconds(), execution.stop, Intent.DEADLINE)
        stopping = asyncio.create_task(execution.stopping())
        try:
            both: set[asyncio.Future[Any]] = {started.future, stopping}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not started.future.done():
                frames = started.stack()
                await started.end(execution)
                if not _succeeded(started.future):
                    return AttemptReport(_stopped(execution, frames))
            return AttemptReport(_outcome(execution, context, started.future))
        finally:
            deadline.cancel()
            stopping.cancel()
            if execution.lingering is None:
                started.future.cancel()  # nothing to do for one that is done; this attempt itself may be cancelled


class HandlerExit(Exception):
    """A coroutine raised SystemExit or KeyboardInterrupt, which asyncio would let out of the loop."""


async def _contained(coroutine: Coroutine[Any, Any, BaseModel | None]) -> BaseModel | None:
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise HandlerExit(f"the handler raised {error!r}") from error


class _Coroutine:
    def __init__(self, coroutine: Coroutine[Any, Any, BaseModel | None]) -> None:
        self._coroutine = coroutine
        self.future = asyncio.ensure_future(_contained(coroutine))

    def stack(self) -> str:
        """Where the coroutine stands, down to the innermost await."""
        frames: list[str] = []
        inner: Any = self._coroutine
        while inner is not None:
            frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
            if frame is None:
                break
            frames += traceback.format_stack(frame, limit=1)
            inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
        return "".join(frames)

    async def end(self, execution: Execution) -> None:
        self.future.cancel()
        await asyncio.wait({self.future}, timeout=CANCEL_GRACE)
        if not self.future.done():
            log.error("job %s ignores its cancellation and is disowned:\n%s", execution.job.id, self.stack())
            execution.lingering = self.future


class _Thread:
    def __init__(self, execution: Execution, arguments: tuple[Any, ...]) -> None:
        self.future: asyncio.Future[BaseModel | None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._function = execution.handler.function
        self._arguments = arguments
        # A daemon: a disowned thread must not keep the process from ending.
        self._thread = threading.Thread(target=self._main, name=f"job {execution.job.id}", daemon=True)
        self._thread.start()

    def stack(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame else ""

    async def end(self, execution: Execution) -> None:
        log.warning("job %s runs in a thread, which cannot be stopped; it is disowned", execution.job.id)
        execution.lingering = self.future

    def _main(self) -> None:
        try:
            result: Any = self._function(*self._arguments)
        except BaseException as error:  # noqa: BLE001  (whatever ends the thread must reach the loop)
            # StopIteration cannot be set on a future; any other wrapper would do.
            settled: Any = RuntimeError(f"handler raised {error!r}") if isinstance(error, StopIteration) else error
            self._settle(settled, failed=True)
        else:
            self._settle(result, failed=False)

    def _settle(self, value: Any, *, failed: bool) -> None:
        def settle() -> None:
            if not self.future.done():
                self.future.set_exception(value) if failed else self.future.set_result(value)

        try:
            self._loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop has ended before its disowned thread did
            log.info("a disowned thread returned after the worker's end")


def _succeeded(future: "asyncio.Future[BaseModel | None]") -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _stopped(execution: Execution, frames: str) -> Outcome:
    match execution.intent:
        case Intent.DEADLINE:
            message = f"timed out after {execution.job.timeout}"
            return Died(Verdict.TIMED_OUT, JobError("TimedOut", message, frames))
        case Intent.CANCEL:
            return Cancelled()
        case Intent.LEASE_LOST:
            return Returned(Verdict.LEASE_LOST, "the worker lost its lease")
        case _:
            return Returned(Verdict.RELEASED, "the worker shut down")


def _outcome(execution: Execution, context: BoundContext, future: "asyncio.Future[BaseModel | None]") -> Outcome:
    try:
        value = future.result()
        return Succeeded(completed_in=True) if context.completed_in else _success(value)
    except Snooze as snooze:
        return Snoozed(snooze.delay)
    except LeaseLost:
        return Returned(Verdict.LEASE_LOST, "complete_in found that the job belongs to another claim")
    except asyncio.CancelledError as error:
        if execution.intent is not None:
            return _stopped(execution, "")
        return Failed(describe(error))  # the handler cancelled itself
    except BaseException as error:  # noqa: BLE001  (a job's SystemExit must not end the worker)
        permanent = isinstance(error, (PermanentError, *execution.handler.task.permanent_errors))
        return Failed(describe(error), permanent=permanent)


def _success(value: object) -> Outcome:
    try:
        return Succeeded(result_json(value))
    except (TypeError, ValueError) as error:  # running it again would repeat its effects, and return the same
        return Failed(JobError("InvalidResult", str(error)), permanent=True)
