"""The checker itself: silent about a good history, and a sentence for each way in which one can be bad."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.checker import INVARIANTS, check
from tests.chaos.history import (
    Attempt,
    Change,
    Entry,
    Exit,
    Halt,
    History,
    KindChange,
    LeaseChange,
    Sighting,
    Slots,
)

WORKER, OTHER = "worker-a", "worker-b"
QUEUED = Change(1, 10.0, 7, "work", None, "queued", None, 0, None, 0)


def moved(seq: int, at: float, old: str, new: str, claim: int, attempts: tuple[int, int], **more: Any) -> Change:
    """One change of job 7; a claim is one into `running`."""
    old_claim = claim - 1 if new == "running" and old != "running" else claim
    return Change(seq, at, more.pop("job", 7), "work", old, new, old_claim, claim, *attempts, worker=WORKER, **more)


GOOD = History(
    changes=[
        QUEUED,
        moved(2, 11.0, "queued", "running", 1, (0, 1)),
        moved(3, 12.0, "running", "queued", 1, (1, 1)),
        moved(4, 13.0, "queued", "running", 2, (1, 2)),
        moved(5, 14.0, "running", "succeeded", 2, (2, 2)),
    ],
    attempts=[Attempt(7, 1, "work", WORKER, "killed", True, True)],
    leases=[LeaseChange(1, 9.0, WORKER, 100, 30.0), LeaseChange(2, 9.0, OTHER, 200, 30.0)],
    diary=[
        Entry(11.1, 7, 1, 101, "child", "start"),
        Entry(13.1, 7, 2, 102, "child", "start"),
        Entry(13.5, 7, 2, 102, "child", "effect"),
    ],
    effects=[(7, 2)],
    effect_jobs=frozenset({7}),
    enqueued=frozenset({7}),
    sightings=[Sighting(102, "child", 100, 13.1, 13.9, 7)],
    slots=[Slots("agent", 6, 6)],
    exits=[Exit(100, 0, True, 40.0)],
    kinds=[KindChange(1, 5.0, "work", True), KindChange(2, 6.0, "work", False)],
)


def changes(*found: Change, **more: Any) -> History:
    return replace(GOOD, changes=list(found), diary=[], effects=[], effect_jobs=frozenset(), attempts=[], **more)


def swap(place: int, change: Change) -> History:
    return replace(GOOD, changes=[*GOOD.changes[:place], change, *GOOD.changes[place + 1 :]])


def with_lines(*lines: Entry, **more: Any) -> History:
    return replace(GOOD, diary=[*GOOD.diary, *lines], **more)


def keyed(seq: int, at: float, old: str | None, new: str, job: int) -> Change:
    return Change(seq, at, job, "work", old, new, None, 0, None, 0, dedupe_key="same", dedupe_active=True)


def running(seq: int, job: int, began: float, ended: float) -> list[Change]:
    names = {"job": job, "key": "only one"}
    return [
        Change(seq, 10.0, job, "work", None, "queued", None, 0, None, 0),
        moved(seq + 1, began, "queued", "running", 1, (0, 1), **names),
        moved(seq + 2, ended, "running", "succeeded", 1, (1, 1), **names),
    ]


def fired(seq: int, at: float, occurrence: float) -> Change:
    return replace(QUEUED, seq=seq, at=at, job=seq, kind="tick", schedule="every", occurrence=occurrence)


TICKS = {"grids": {"every": 1.0}, "endless_kinds": frozenset({"tick"})}
PAUSED = [KindChange(1, 9.0, "work", True)]

BAD: list[tuple[int, str, Callable[[], History]]] = [
    (1, "not in the journal", lambda: replace(GOOD, enqueued=frozenset({7, 8}))),
    (1, "rolled back", lambda: replace(GOOD, rolled_back=frozenset({"m"}), marks=frozenset({"m"}))),
    (1, "still running after the drain", lambda: changes(*GOOD.changes[:2])),
    (1, "still queued after the drain", lambda: changes(*GOOD.changes[:3])),
    (
        1,
        "went from succeeded to queued",
        lambda: changes(*GOOD.changes, moved(6, 15.0, "succeeded", "queued", 2, (2, 2))),
    ),
    (
        1,
        "went from succeeded to None",
        lambda: changes(*GOOD.changes, replace(moved(6, 15.0, "succeeded", "", 2, (2, 2)), new=None)),
    ),
    (1, "it was queued before", lambda: changes(QUEUED, *GOOD.changes[2:])),
    (2, "from claim 1 to 1", lambda: swap(3, replace(GOOD.changes[3], claim=1))),
    (2, "from claim 1 to 3", lambda: swap(3, replace(GOOD.changes[3], claim=3))),
    (2, "was started 2 times", lambda: with_lines(Entry(13.2, 7, 2, 103, "child", "start"))),
    (2, "before its claim", lambda: with_lines(Entry(12.5, 7, 2, 103, "child", "beat"))),
    (2, "before its claim", lambda: with_lines(Entry(12.5, 7, 9, 103, "child", "beat"))),
    (2, "after its end", lambda: with_lines(Entry(12.9, 7, 1, 101, "child", "beat"))),
    (2, "has 2 effects", lambda: replace(GOOD, effects=[(7, 2), (7, 2)])),
    (2, "ended as queued", lambda: replace(GOOD, effects=[(7, 1), (7, 2)])),
    (2, "without its effect", lambda: replace(GOOD, effects=[])),
    (3, "0 to 2 of 5 attempts", lambda: swap(1, replace(GOOD.changes[1], attempt=2))),
    (3, "0 to 0 of 5 attempts", lambda: swap(1, replace(GOOD.changes[1], attempt=0))),
    (3, "1 to 2 of 1 attempts", lambda: swap(3, replace(GOOD.changes[3], max_attempts=1))),
    (3, "2 to 0 of 5 attempts", lambda: swap(4, replace(GOOD.changes[4], attempt=0))),
    (3, "has no row of its attempt", lambda: replace(GOOD, attempts=[])),
    (3, "is charged for killed, and its attempt was given back", lambda: swap(2, replace(GOOD.changes[2], attempt=0))),
    (3, "is not charged for killed", lambda: replace(GOOD, attempts=[replace(GOOD.attempts[0], charged=False)])),
    (3, "is charged for released", lambda: replace(GOOD, attempts=[replace(GOOD.attempts[0], verdict="released")])),
    (3, "has the verdict succeeded", lambda: replace(GOOD, attempts=[replace(GOOD.attempts[0], verdict="succeeded")])),
    (3, "never claimed", lambda: replace(GOOD, attempts=[*GOOD.attempts, replace(GOOD.attempts[0], claim=9)])),
    (
        3,
        "counts as 2 kills",
        lambda: replace(
            GOOD, attempts=[Attempt(7, claim, "work", WORKER, "worker_lost", True, True) for claim in (1, 2)]
        ),
    ),
    (4, "ended at", lambda: replace(GOOD, leases=[LeaseChange(1, 9.0, WORKER, 100, 13.3)])),
    (
        4,
        "that was gone",
        lambda: replace(
            GOOD,
            leases=[
                LeaseChange(1, 9, WORKER, 100, 30),
                LeaseChange(2, 9.5, WORKER, 100, 30, lost=True),
                LeaseChange(3, 9.6, WORKER, 100, 40),
            ],
        ),
    ),
    (5, "ran at once", lambda: changes(*running(1, 7, 11.0, 13.0), *running(4, 8, 12.0, 14.0))),
    (5, "all queued", lambda: changes(QUEUED, keyed(2, 11.0, None, "queued", 8), keyed(3, 12.0, None, "queued", 9))),
    (
        5,
        "alive with dedupe_active",
        lambda: changes(
            keyed(1, 11.0, None, "queued", 8), keyed(2, 12.0, "queued", "running", 8), keyed(3, 13.0, None, "queued", 9)
        ),
    ),
    (6, "was paused at", lambda: replace(GOOD, kinds=PAUSED)),
    (
        6,
        "beside its probe",
        lambda: replace(GOOD, kinds=[KindChange(1, 5, "work", True, True, 3), KindChange(2, 6, "work", True, True, 4)]),
    ),
    (7, "as job 13", lambda: replace(GOOD, changes=[*GOOD.changes, fired(12, 50.1, 50), fired(13, 50.2, 50)], **TICKS)),
    (7, "as job 13", lambda: replace(GOOD, changes=[*GOOD.changes, fired(12, 50.1, 50), fired(13, 50.2, 49)], **TICKS)),
    (7, "not a point of its grid", lambda: replace(GOOD, changes=[*GOOD.changes, fired(12, 50.1, 49.5)], **TICKS)),
    (7, "fired last at", lambda: replace(GOOD, changes=[*GOOD.changes, fired(12, 50.1, 50)], drained_at=80.0, **TICKS)),
    (
        8,
        "child 102 of supervisor 100 was alive",
        lambda: replace(GOOD, sightings=[Sighting(102, "child", 100, 13.1, 19.5, 7)]),
    ),
    (
        8,
        "helper 103 of supervisor 100",
        lambda: replace(GOOD, sightings=[Sighting(103, "helper", 0, 11.2, 17.5, 7, 1)]),
    ),
    (8, "was not reaped", lambda: replace(GOOD, sightings=[Sighting(102, "zombie", 100, 13.1, 16.0)])),
    (
        8,
        "which was killed at",
        lambda: replace(
            GOOD, sightings=[Sighting(102, "child", 100, 13.1, 14.9, 7)], halts=[Halt(100, 13.5, float("inf"))]
        ),
    ),
    (8, "it has 6 slots", lambda: replace(GOOD, slots=[Slots("agent", 6, 5)])),
    (9, "ended with status 1", lambda: replace(GOOD, exits=[Exit(100, 1, True, 40.0)])),
    (9, "nobody told it to", lambda: replace(GOOD, exits=[Exit(100, 0, False, 40.0)])),
]


def test_a_good_history_has_no_violation() -> None:
    assert check(GOOD) == []


@pytest.mark.parametrize(("invariant", "sentence", "history"), BAD, ids=[f"{n}: {text}" for n, text, _ in BAD])
def test_a_bad_history_is_flagged(invariant: int, sentence: str, history: Callable[[], History]) -> None:
    found = check(history())
    assert any(violation.invariant == invariant and sentence in violation.text for violation in found), found


def test_every_invariant_has_a_bad_history() -> None:
    assert {invariant for invariant, _, _ in BAD} == set(INVARIANTS)


def test_a_stopped_supervisor_may_be_late_and_a_running_one_may_not() -> None:
    late = with_lines(Entry(12.9, 7, 1, 101, "child", "beat"), leases=[LeaseChange(1, 9.0, WORKER, 100, 12.0)])
    assert {violation.invariant for violation in check(late)} == {2, 4}
    assert check(replace(late, halts=[Halt(100, 11.5, 13.5)])) == []


def test_a_probe_may_start_although_its_kind_is_paused() -> None:
    probed = [*PAUSED, KindChange(2, 10.5, "work", True, True), KindChange(3, 11.0, "work", True, True, 7)]
    opened = [*probed, KindChange(4, 12.0, "work", False)]
    assert check(replace(GOOD, kinds=opened)) == []
