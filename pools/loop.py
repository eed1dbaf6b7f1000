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
from abc import ABC, abstractmethod
from collections.abc import Callable
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
from jobs.redaction import Redactor
from jobs.subject import about, subject
from jobs.task import PermanentError, Snooze
from pools.deadlines import Deadlines
from pools.errors import describe, invalid_payload
from pools.execution import Execution, Intent, Report

log = logging.getLogger("oomph.loop")

_NOTHING = Succeeded()  # of a handler that returns nothing: most of them
SUCCESS = AttemptReport(_NOTHING)

CANCEL_GRACE = 5.0  # seconds that a cancelled coroutine has for its own clean-up before it is disowned


class LoopPool:
    """Runs attempts on the running loop: one task, or one thread, for each."""

    def __init__(self) -> None:
        self._deadlines = Deadlines()

    async def start(self) -> None:
        """Nothing to prepare."""

    def expect_more(self) -> None:
        """Nothing to prepare."""

    async def stop(self) -> None:
        """Nothing to release: whoever runs attempts waits for them."""

    def begin(self, execution: Execution, report: Report) -> None:
        """Run one attempt; call `report` once, when it has ended or is disowned. Never raises for what a job does."""
        job, task = execution.job, execution.handler.task
        try:
            payload = task.payload_type.model_validate_json(job.payload)
        except ValidationError as error:
            report(AttemptReport(Failed(invalid_payload(error), permanent=True)))
            return
        except BaseException as error:  # noqa: BLE001  (a validator of the user's may raise anything, also SystemExit)
            report(AttemptReport(Failed(describe(error, execution.redactor), permanent=True)))
            return
        context: BoundContext | None = None
        arguments: tuple[Any, ...] = (payload,)
        if execution.handler.takes_context:
            deadline = datetime.now(UTC) + job.timeout
            context = BoundContext(
                job.id, job.claim, job.attempt, job.organization_id, deadline, execution.publish, execution.redactor
            )
            arguments = (payload, context)
        run = _Coroutine if execution.handler.is_async else _Thread
        run(execution, context, arguments, report, self._deadlines)


class HandlerExit(Exception):
    """A coroutine raised SystemExit or KeyboardInterrupt, which asyncio would let out of the loop."""


class _Run(ABC):
    """One handler that runs: its future, its deadline, and its one report."""

    __slots__ = ("_context", "_deadlines", "_execution", "_frames", "_future", "_report", "_was_stopped")

    def __init__(
        self,
        execution: Execution,
        context: BoundContext | None,
        arguments: tuple[Any, ...],
        report: Report,
        deadlines: Deadlines,
    ) -> None:
        self._execution = execution
        self._context = context
        self._report: Report | None = report
        self._deadlines = deadlines
        self._frames = ""
        self._was_stopped = False
        loop = asyncio.get_running_loop()
        self._future = self._begin(execution.handler.function, arguments, loop)
        self._future.add_done_callback(self._ended)
        deadlines.watch(execution, execution.job.timeout.total_seconds(), loop)
        execution.on_stop(self._stop)

    @abstractmethod
    def _begin(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], loop: asyncio.AbstractEventLoop
    ) -> "asyncio.Future[BaseModel | None]":
        """Start the handler. Returns what will hold its outcome."""

    @abstractmethod
    def _stop(self) -> None:
        """End the handler, or what can be ended of it; what has ended already keeps its outcome."""

    def _disown(self) -> None:
        self._execution.lingering = self._future
        self._send(_stopped(self._execution, self._frames))

    def _ended(self, future: "asyncio.Future[BaseModel | None]") -> None:
        if self._report is None:
            if not future.cancelled():
                future.exception()  # of a disowned one nobody wants to know
            return
        try:
            if self._was_stopped and not _succeeded(future):
                outcome = _stopped(self._execution, self._frames)
            else:
                outcome = _outcome(self._execution, self._context, future)
        except BaseException as error:  # noqa: BLE001  (a result's serializer may raise anything, also SystemExit)
            outcome = Failed(describe(error, self._execution.redactor), permanent=True)
        self._send(outcome)

    def _send(self, outcome: Outcome) -> None:
        self._deadlines.forget(self._execution)
        self._execution.on_stop(_nothing)  # or an error would hold its frames, those the execution, and that the error
        report, self._report = self._report, None
        if report is not None:
            report(SUCCESS if outcome is _NOTHING else AttemptReport(outcome))


class _Coroutine(_Run):
    __slots__ = ("_begun",)

    def _begin(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], loop: asyncio.AbstractEventLoop
    ) -> "asyncio.Future[BaseModel | None]":
        self._begun: list[Any] = []
        handler = _contained(self._execution, function, arguments, self._begun)
        return loop.create_task(handler, name=f"job {self._execution.job.id}")

    def _stack(self) -> str:
        """Where the coroutine stands, down to the innermost await."""
        frames: list[str] = []
        inner: Any = self._begun[0] if self._begun else None
        while inner is not None:
            frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
            if frame is None:
                break
            frames += traceback.format_stack(frame, limit=1)
            inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
        return "".join(frames)

    def _stop(self) -> None:
        frames = self._stack()
        if self._future.cancel():
            self._frames, self._was_stopped = frames, True
            self._future.get_loop().call_later(CANCEL_GRACE, self._look_again)

    def _look_again(self) -> None:
        if self._report is None:
            return
        job = self._execution.job
        log.error("job %s ignores its cancellation and is disowned:\n%s", job.id, self._stack(), extra=about(job))
        self._disown()


class _Thread(_Run):
    __slots__ = ("_thread",)

    def _begin(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], loop: asyncio.AbstractEventLoop
    ) -> "asyncio.Future[BaseModel | None]":
        future: asyncio.Future[BaseModel | None] = loop.create_future()
        # A daemon: a disowned thread must not keep the process from ending.
        self._thread = threading.Thread(
            target=_settle_from_thread,
            args=(future, function, arguments, self._execution),
            name=f"job {self._execution.job.id}",
            daemon=True,
        )
        self._thread.start()
        return future

    def _stop(self) -> None:
        if self._future.done():
            return
        frame = sys._current_frames().get(self._thread.ident or 0)
        self._frames = "".join(traceback.format_stack(frame)) if frame else ""
        job = self._execution.job
        log.warning("job %s runs in a thread, which cannot be stopped; it is disowned", job.id, extra=about(job))
        self._disown()


async def _contained(
    execution: Execution, function: Callable[..., Any], arguments: tuple[Any, ...], begun: list[Any]
) -> BaseModel | None:
    """A handler as a task; its coroutine goes into `begun`. Knows no `_Run`: its frame is held by what it raises."""
    _concern(execution)  # of the task's own context, and of what it starts
    begun.append(function(*arguments))
    try:
        return await begun[0]  # type: ignore[no-any-return]
    except (SystemExit, KeyboardInterrupt) as error:
        raise HandlerExit(f"the handler raised {error!r}") from error


def _nothing() -> None:
    """Nothing runs any more that could be stopped."""


def _concern(execution: Execution) -> None:
    """Whatever the current context logs or traces from now on is this attempt's."""
    subject.set(execution.job)
    execution.redactor.hold()
    if execution.span is not None:
        execution.span.enter()


def _settle_from_thread(
    future: "asyncio.Future[BaseModel | None]",
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    execution: Execution,
) -> None:
    _concern(execution)  # of this thread
    result: Any = None
    failure: BaseException | None = None
    try:
        result = function(*arguments)
    except BaseException as error:  # noqa: BLE001  (whatever ends the thread must reach the loop)
        # StopIteration cannot be set on a future; any other wrapper would do.
        failure = RuntimeError(f"handler raised {error!r}") if isinstance(error, StopIteration) else error

    def settle() -> None:
        if not future.done():
            future.set_result(result) if failure is None else future.set_exception(failure)

    try:
        future.get_loop().call_soon_threadsafe(settle)
    except RuntimeError:  # the loop has ended before its disowned thread did
        log.info("a disowned thread returned after the worker's end")


def _succeeded(future: "asyncio.Future[BaseModel | None]") -> bool:
    return not future.cancelled() and future.exception() is None


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


def _outcome(execution: Execution, context: BoundContext | None, future: "asyncio.Future[BaseModel | None]") -> Outcome:
    match error := _error(future):
        case None:
            if context is not None and context.completed_in:
                return Succeeded(completed_in=True)
            value = future.result()
            return _NOTHING if value is None else _success(value, execution.redactor)
        case Snooze():
            return Snoozed(error.delay)
        case LeaseLost():
            return Returned(Verdict.LEASE_LOST, "complete_in found that the job belongs to another claim")
        case asyncio.CancelledError() if execution.intent is not None:
            return _stopped(execution, "")
        case _:  # also one that cancelled itself
            permanent = isinstance(error, (PermanentError, *execution.handler.task.permanent_errors))
            return Failed(describe(error, execution.redactor), permanent=permanent)


def _error(future: "asyncio.Future[BaseModel | None]") -> BaseException | None:
    """What it ended with. Raised once more, by `result`, it would hold the frame that holds the future."""
    try:
        return future.exception()
    except asyncio.CancelledError as cancelled:
        return cancelled


def _success(value: object, redactor: Redactor) -> Outcome:
    try:
        return Succeeded(result_json(value, redactor))
    except (TypeError, ValueError) as error:  # running it again would repeat its effects, and return the same
        return Failed(JobError("InvalidResult", redactor.text(str(error))), permanent=True)
