"""Declarations: what is wrong is refused where it is written, with a message that says what to write instead."""

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from jobs import App, Handler, Misfire, Overlap, Payload, Pool, Priority, Schedule, Snooze, Task, Tick
from jobs.task import MAX_DELAY
from tests.jobs.lab import NOTE, Note

TICK = Task(kind="tick", payload_type=Tick, pool=Pool.SYSTEM)


def declare(**changes: Any) -> Task[Note]:
    return Task(**{"kind": "note", "payload_type": Note, "pool": Pool.SYSTEM, **changes})


async def handle(payload: Note) -> None: ...


async def handle_tick(payload: Tick) -> None: ...


def test_a_task_has_the_defaults_of_its_documentation() -> None:
    task = declare()
    assert (task.max_attempts, task.timeout, task.priority) == (5, timedelta(minutes=5), Priority.DEFAULT)
    assert (task.memory_mb, task.permanent_errors) == (None, ())


@pytest.mark.parametrize("kind", ["a", "ingest-document", "billing.invoice:v2", "9lives", "a" * 100])
def test_a_kind_is_a_plain_label(kind: str) -> None:
    assert declare(kind=kind).kind == kind


@pytest.mark.parametrize("kind", ["", "-a", "Note", "no te", "n\u00f6te", "a/b", "a" * 101, "note\n", "a\x00"])
def test_a_kind_that_is_no_plain_label_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="use lower-case letters"):
        declare(kind=kind)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"kind": 5}, TypeError, "kind must be a string, not 5"),
        ({"payload_type": dict}, TypeError, "payload_type must be a subclass of Payload"),
        ({"payload_type": Note(text="x")}, TypeError, "payload_type must be a subclass of Payload"),
        ({"pool": "system"}, TypeError, "pool must be one of Pool.AGENT, Pool.INGEST, Pool.SYSTEM, not 'system'"),
        ({"pool": "gpu"}, TypeError, "pool must be one of Pool.AGENT, Pool.INGEST, Pool.SYSTEM, not 'gpu'"),
        ({"priority": 1}, TypeError, "priority must be one of INTERACTIVE, DEFAULT, BULK"),
        ({"max_attempts": 0}, ValueError, "max_attempts=0 is outside 1 to 1000"),
        ({"max_attempts": 1001}, ValueError, "max_attempts=1001 is outside"),
        ({"max_attempts": 2.5}, TypeError, "max_attempts must be a whole number, not 2.5"),
        ({"max_attempts": True}, TypeError, "max_attempts must be a whole number, not True"),
        ({"timeout": 300}, TypeError, "timeout must be a timedelta, not 300"),
        ({"timeout": timedelta(0)}, ValueError, "timeout=0:00:00 is outside"),
        ({"timeout": timedelta(days=7, microseconds=1)}, ValueError, "is outside 0 to 7 days"),
        ({"memory_mb": 512}, ValueError, "memory_mb needs pool ingest"),
        ({"memory_mb": 0, "pool": Pool.INGEST}, ValueError, "memory_mb=0 must be at least 1"),
        ({"memory_mb": 1.5, "pool": Pool.INGEST}, TypeError, "memory_mb must be a whole number, not 1.5"),
        ({"permanent_errors": [ValueError]}, TypeError, "permanent_errors must be a tuple of exception types"),
        ({"permanent_errors": ValueError}, TypeError, "permanent_errors must be a tuple of exception types"),
        ({"permanent_errors": ("ValueError",)}, TypeError, "permanent_errors must be a tuple of exception types"),
    ],
)
def test_a_wrong_declaration_is_refused_and_says_what_to_write(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        declare(**changes)


def test_the_widest_declaration_is_taken() -> None:
    task = declare(
        pool=Pool.INGEST,
        max_attempts=1000,
        timeout=timedelta(days=7),
        memory_mb=1,
        priority=Priority.BULK,
        permanent_errors=(ValueError, KeyError),
    )
    assert task.memory_mb == 1


def test_a_payload_is_frozen_and_refuses_unknown_fields() -> None:
    note = Note(text="x")
    with pytest.raises(ValidationError):
        note.text = "y"
    with pytest.raises(ValidationError):
        Note.model_validate({"text": "x", "colour": "red"})


def test_a_payload_survives_its_way_through_json() -> None:
    class Measured(Payload):
        at: datetime
        values: list[float]

    before = Measured(at=datetime(2026, 3, 29, 2, 30, tzinfo=UTC), values=[float("inf"), -0.5, 1e300])
    assert Measured.model_validate_json(before.model_dump_json()) == before


@pytest.mark.parametrize(
    ("function", "takes_context"),
    [
        (lambda payload: None, False),
        (lambda payload, job: None, True),
        (lambda payload, context: None, True),
        (lambda payload, job=None: None, True),
        (lambda payload, retries=3: None, False),
        (lambda payload, *, verbose=False: None, False),
        (functools.partial(lambda prefix, payload: None, "x"), False),
        (functools.partial(lambda prefix, payload, job: None, "x"), True),
    ],
)
def test_a_handler_takes_the_payload_and_perhaps_the_context(
    function: Callable[..., None], takes_context: bool
) -> None:
    assert Handler(NOTE, function).takes_context is takes_context


@pytest.mark.parametrize(
    "function",
    [lambda: None, lambda a, b, c: None, lambda payload, *, must: None, lambda *, payload: None, "handle", None],
)
def test_a_handler_of_another_shape_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="handler of note"):
        Handler(NOTE, function)


def test_a_handler_with_its_arguments_swapped_says_so() -> None:
    with pytest.raises(TypeError, match="Handler takes a Task first"):
        Handler(handle, NOTE)  # type: ignore[arg-type]


def test_a_handler_knows_whether_it_is_asynchronous() -> None:
    class Instance:
        async def __call__(self, payload: Note) -> None: ...

    @functools.wraps(handle)
    def wrapped(payload: Note) -> Any:
        return handle(payload)

    assert Handler(NOTE, handle).is_async
    assert Handler(NOTE, functools.partial(handle)).is_async
    assert Handler(NOTE, Instance()).is_async
    assert Handler(NOTE, wrapped).is_async
    assert not Handler(NOTE, lambda payload: None).is_async


def test_an_app_refuses_what_cannot_work() -> None:
    with pytest.raises(ValueError, match="two handlers for kind note"):
        App([Handler(NOTE, handle), Handler(NOTE, handle)])
    with pytest.raises(ValueError, match="no handler for its kind tick"):
        App([Handler(NOTE, handle)], [Schedule("s", TICK, timedelta(hours=1))])
    with pytest.raises(ValueError, match="two schedules named s"):
        App([Handler(TICK, handle_tick)], [Schedule("s", TICK, timedelta(hours=n)) for n in (1, 2)])


def test_an_app_knows_the_kinds_of_each_pool_and_cannot_be_changed() -> None:
    app = App([Handler(NOTE, handle), Handler(TICK, handle_tick)], preload=["json"])
    assert app.kinds(Pool.SYSTEM) == ["note", "tick"]
    assert app.kinds(Pool.INGEST) == []
    assert app.preload == ("json",)
    with pytest.raises(TypeError):
        app.handlers["other"] = Handler(NOTE, handle)  # type: ignore[index]


def test_a_schedule_takes_the_words_of_its_choices() -> None:
    schedule = Schedule("s", TICK, timedelta(hours=1), misfire="skip", overlap="queue")  # type: ignore[arg-type]
    assert schedule.misfire is Misfire.SKIP
    assert schedule.overlap is Overlap.QUEUE


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"name": ""}, ValueError, "must have 1 to 100 characters"),
        ({"name": "x" * 101}, ValueError, "must have 1 to 100 characters"),
        ({"task": NOTE}, TypeError, "takes Note; a scheduled task takes Tick"),
        ({"every": timedelta(0)}, ValueError, "must be whole seconds, at least one"),
        ({"every": timedelta(seconds=1.5)}, ValueError, "must be whole seconds, at least one"),
        ({"every": timedelta(days=-1)}, ValueError, "must be whole seconds, at least one"),
        ({"every": timedelta(days=3651)}, ValueError, "at most"),
        ({"every": 60}, TypeError, "every must be a timedelta, not 60"),
        ({"every": "0 5 * * *"}, TypeError, "use cron= for cron"),
        ({"grace": timedelta(seconds=-1)}, ValueError, "is negative"),
        ({"grace": 60}, TypeError, "grace must be a timedelta, not 60"),
        ({"misfire": "all"}, ValueError, "'all' is not a valid Misfire"),
        ({"overlap": "maybe"}, ValueError, "'maybe' is not a valid Overlap"),
    ],
)
def test_a_wrong_schedule_is_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Schedule(**{"name": "s", "task": TICK, "every": timedelta(hours=1), **changes})


def test_a_snooze_needs_a_delay_that_a_database_can_add_to_now() -> None:
    assert Snooze(timedelta(hours=1)).delay == timedelta(hours=1)
    assert Snooze(timedelta(0)).delay == timedelta(0)
    assert Snooze(MAX_DELAY).delay == MAX_DELAY
    with pytest.raises(ValueError, match="is negative"):
        Snooze(timedelta(microseconds=-1))
    with pytest.raises(ValueError, match="longer than"):
        Snooze(MAX_DELAY + timedelta(seconds=1))


def test_a_snooze_takes_seconds_too() -> None:
    assert Snooze(60).delay == timedelta(minutes=1)
    assert Snooze(0.5).delay == timedelta(milliseconds=500)
    assert Snooze(MAX_DELAY.total_seconds()).delay == MAX_DELAY
    for wrong in (-1, 1e300, float("nan"), float("inf"), 10**400):
        with pytest.raises(ValueError, match=r"negative|allowed"):
            Snooze(wrong)
    for alien in (True, "60", None):
        with pytest.raises(TypeError, match="a timedelta or seconds, not"):
            Snooze(alien)  # type: ignore[arg-type]


def test_an_app_takes_over_what_the_apps_that_it_includes_have() -> None:
    daily = Schedule("daily", TICK, timedelta(days=1))
    inner = App([Handler(TICK, handle_tick)], [daily], preload=["json", "csv"])
    outer = App([Handler(NOTE, handle)], preload=["csv", "zlib"], include=[inner])
    assert (set(outer.handlers), dict(outer.schedules)) == ({"tick", "note"}, {"daily": daily})
    assert outer.preload == ("json", "csv", "zlib")
    assert App([Handler(NOTE, handle)], [daily], include=[App([Handler(TICK, handle_tick)])]).schedules
    with pytest.raises(ValueError, match="two handlers for kind tick"):
        App([Handler(TICK, handle_tick)], include=[inner])
    with pytest.raises(ValueError, match="two schedules named daily"):
        App([], [daily], include=[inner])
    with pytest.raises(TypeError, match="App includes an App"):
        App([], include=[lambda: inner])  # type: ignore[list-item]
