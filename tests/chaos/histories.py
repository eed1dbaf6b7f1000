"""A good history, and ways to make bad ones of it: what the tests of the checker are fed with."""

from dataclasses import replace
from typing import Any

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


def again(*more: Change) -> History:
    return replace(GOOD, changes=[*GOOD.changes, *more])


def among(change: Change) -> History:
    """A write in the middle of claim 2."""
    return replace(GOOD, changes=[*GOOD.changes[:4], change, replace(GOOD.changes[4], seq=10)])


def skipped(*more: Change, **known: Any) -> History:
    """A schedule of one second that fires 50, then 60."""
    return replace(GOOD, changes=[*GOOD.changes, fired(12, 50.1, 50), fired(13, 60.1, 60), *more], **TICKS, **known)


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
RUNS = ("running", "running")
TIMED_OUT = Attempt(7, 1, "work", WORKER, "timed_out", True, False)
RENEWED = [LeaseChange(10 + second, 9.0 + second, OTHER, 200, 30.0 + second) for second in range(100)]
LONG_AGO = Halt(100, 13.0, 14.0)


def lost(ended: float) -> History:
    """Claim 1 ends as that of a lost worker, whose lease ended at 15."""
    moved_on = [
        QUEUED,
        moved(2, 11.0, "queued", "running", 1, (0, 1)),
        moved(3, ended, "running", "queued", 1, (1, 1)),
        moved(4, ended + 1, "queued", "running", 2, (1, 2)),
        moved(5, ended + 2, "running", "succeeded", 2, (2, 2)),
    ]
    lines = [
        Entry(11.1, 7, 1, 101, "child", "start"),
        *(Entry(ended + 1.1, 7, 2, 102, "child", event) for event in ("start", "effect")),
    ]
    return replace(
        GOOD,
        changes=[*moved_on[:3], *(replace(change, worker=OTHER) for change in moved_on[3:])],
        attempts=[Attempt(7, 1, "work", WORKER, "worker_lost", True, True)],
        leases=[
            LeaseChange(1, 9.0, WORKER, 100, 15.0),
            LeaseChange(2, 9.0, OTHER, 200, ended + 9),
            LeaseChange(3, max(15.1, ended - 0.1), WORKER, 100, 15.0, lost=True),
        ],
        diary=lines,
        sightings=[],
    )


def leases(*of_worker: LeaseChange, **more: Any) -> History:
    return replace(GOOD, leases=[*of_worker, LeaseChange(9, 9.0, OTHER, 200, 30.0)], **more)
