"""What a worker can run: `Handler`, `App`, `Schedule`, and the `JobContext` a handler may take."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from types import MappingProxyType
from typing import Any, Generic, Protocol, cast

from pydantic import BaseModel

from jobs.task import MAX_DELAY, P, Payload, Pool, Task


class JobContext(Protocol):
    """What a handler may know of its own job. A handler takes it as its second argument, or not at all."""

    @property
    def job_id(self) -> int: ...

    @property
    def attempt(self) -> int:
        """1 for the first charged attempt."""
        ...

    @property
    def claim(self) -> int:
        """Counts every claim of this job and only grows: a fencing token for writes to other systems."""
        ...

    @property
    def organization_id(self) -> str | None: ...

    @property
    def deadline(self) -> datetime:
        """When the attempt times out, by this host's clock (UTC)."""
        ...

    def progress(self, fraction: float, note: str = "") -> None:
        """Publish how far the work is: 0.0 to 1.0 and a short note. Never blocks; the newest value wins."""
        ...

    def complete_in(self, connection: Any, result: BaseModel | None = None) -> Any:
        """Finish the job inside the handler's own open transaction on `connection`.

        Effects and success commit together or not at all. Await it where the connection is asynchronous.
        Raises `LeaseLost` where the job no longer belongs to this worker: let it propagate, so that the
        transaction rolls back.
        """
        ...


Done = Awaitable[BaseModel | None] | BaseModel | None
HandlerFunction = Callable[[P], Done] | Callable[[P, JobContext], Done]


@dataclass(frozen=True, slots=True)
class Handler(Generic[P]):
    """Binds a task to the coroutine function or plain function that does the work.

    `function` takes `(payload)` or `(payload, job)`. Raises `TypeError` for any other signature.
    """

    task: Task[P]
    function: HandlerFunction[P]
    takes_context: bool = field(init=False)
    is_async: bool = field(init=False)
    secret_paths: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.task, Task):
            raise TypeError(f"Handler takes a Task first and then the function, not {self.task!r}")
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError) as error:
            raise TypeError(f"handler of {self.task.kind}: {self.function!r} is not a function") from error
        parameters = signature.parameters.values()
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        required = [p for p in positional if p.default is p.empty]
        keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        if not len(positional) >= 1 or len(required) > 2 or keywords:
            raise TypeError(f"handler of {self.task.kind} must take (payload) or (payload, job), not {signature}")
        takes_context = len(required) == 2 or (len(positional) >= 2 and positional[1].name == "job")
        object.__setattr__(self, "takes_context", takes_context)
        is_async = inspect.iscoroutinefunction(inspect.unwrap(self.function)) or inspect.iscoroutinefunction(
            getattr(self.function, "__call__", None)  # noqa: B004  (an instance with an async __call__)
        )
        object.__setattr__(self, "is_async", is_async)
        object.__setattr__(self, "secret_paths", self.task.secret_paths)


class Misfire(StrEnum):
    """What happens with occurrences that passed while no worker ran."""

    LATEST = "latest"  # fire the newest one, forget the rest
    SKIP = "skip"  # forget all that are later than the grace


class Overlap(StrEnum):
    """What happens when an occurrence comes while an earlier one is queued or running."""

    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"


class Tick(Payload):
    """The payload of a scheduled job: which schedule, and which point on its grid (UTC)."""

    schedule: str
    occurrence: datetime


@dataclass(frozen=True, slots=True)
class Schedule:
    """Enqueue `task` at every point of a grid: by `every` or by `cron`, one of the two.

    `every`: the Unix epoch + n x `every`, fixed in UTC. `cron`: five fields as Debian's cron reads them, on the clock
    of `timezone`, an IANA name, by default UTC; `jobs.cron` says what happens where that clock jumps. `grace` is how
    late an occurrence may fire before `misfire` decides. With `overlap` queue, an occurrence waits for the one before
    it; with skip it is dropped; with allow both run. Raises `ValueError` or `TypeError` where the declaration itself is
    wrong, or where this host does not know the time zone.
    """

    name: str
    task: Task[Tick]
    every: timedelta | None = None
    misfire: Misfire = Misfire.LATEST
    overlap: Overlap = Overlap.SKIP
    grace: timedelta = timedelta(minutes=1)
    cron: str | None = field(default=None, kw_only=True)
    timezone: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > 100:
            raise ValueError(f"schedule name {self.name!r} must have 1 to 100 characters")
        if self.task.payload_type is not Tick:
            raise TypeError(
                f"schedule {self.name}: the task {self.task.kind} takes {self.task.payload_type.__name__}; "
                "a scheduled task takes Tick"
            )
        if not isinstance(self.grace, timedelta):
            raise TypeError(f"schedule {self.name}: grace must be a timedelta, not {self.grace!r}")
        if self.grace < timedelta(0):
            raise ValueError(f"schedule {self.name}: grace={self.grace} is negative")
        object.__setattr__(self, "misfire", Misfire(self.misfire))
        object.__setattr__(self, "overlap", Overlap(self.overlap))
        if (self.every is None) == (self.cron is None):
            raise TypeError(f"schedule {self.name}: give it either every=timedelta(..) or cron='..'")
        if self.every is not None:
            self._check_step(self.every)
        else:
            self._set_cron()

    def _check_step(self, every: object) -> None:
        if not isinstance(every, timedelta):
            raise TypeError(f"schedule {self.name}: every must be a timedelta, not {every!r}; use cron= for cron")
        if every < timedelta(seconds=1) or every.microseconds:
            raise ValueError(f"schedule {self.name}: every={every} must be whole seconds, at least one")
        if every > MAX_DELAY:
            raise ValueError(f"schedule {self.name}: every={every} must be at most {MAX_DELAY}")
        if self.timezone is not None:
            raise TypeError(f"schedule {self.name}: every counts in UTC; a timezone belongs to cron")

    def _set_cron(self) -> None:
        from jobs.cron import Cron  # a service that enqueues needs neither it nor its library

        timezone = "UTC" if self.timezone is None else self.timezone
        for field_name, value in (("cron", self.cron), ("timezone", timezone)):
            if not isinstance(value, str):
                raise TypeError(f"schedule {self.name}: {field_name} must be a string, not {value!r}")
        try:
            cron = Cron(cast("str", self.cron), timezone)
        except ValueError as error:
            raise ValueError(f"schedule {self.name}: {error}") from error
        object.__setattr__(self, "cron", cron.expression)
        object.__setattr__(self, "timezone", cron.timezone)


class App:
    """Everything one worker can run.

    `preload` names modules that the template imports before it forks, so that no child pays for the import. What the
    apps of `include` have is taken over, so that one worker can run documents, say, and handlers of your own. Raises
    `ValueError` for two handlers of one kind, two schedules of one name, or a schedule without a handler.
    """

    def __init__(
        self,
        handlers: Iterable[Handler[Any]],
        schedules: Iterable[Schedule] = (),
        *,
        preload: Iterable[str] = (),
        include: Iterable["App"] = (),
    ) -> None:
        others = list(include)
        for other in others:
            if not isinstance(other, App):
                raise TypeError(f"App includes an App, such as jobs.documents.app.app(), not {other!r}")
        by_kind: dict[str, Handler[Any]] = {}
        for handler in chain(*(other.handlers.values() for other in others), handlers):
            if not isinstance(handler, Handler):
                raise TypeError(f"App takes handlers such as Handler(TASK, function), not {handler!r}")
            if handler.task.kind in by_kind:
                raise ValueError(f"two handlers for kind {handler.task.kind}")
            by_kind[handler.task.kind] = handler
        by_name: dict[str, Schedule] = {}
        for schedule in chain(*(other.schedules.values() for other in others), schedules):
            if schedule.name in by_name:
                raise ValueError(f"two schedules named {schedule.name}")
            if schedule.task.kind not in by_kind:
                raise ValueError(f"schedule {schedule.name}: no handler for its kind {schedule.task.kind}")
            by_name[schedule.name] = schedule
        self.handlers: Mapping[str, Handler[Any]] = MappingProxyType(by_kind)
        self.schedules: Mapping[str, Schedule] = MappingProxyType(by_name)
        self.preload: tuple[str, ...] = tuple(dict.fromkeys(chain(*(other.preload for other in others), preload)))

    def kinds(self, pool: Pool) -> list[str]:
        """The kinds that run in `pool`."""
        return [kind for kind, handler in self.handlers.items() if handler.task.pool is pool]
