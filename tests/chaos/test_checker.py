"""The checker itself: silent about a good history, and a sentence for each way in which one can be bad."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.checker import INVARIANTS, check
from tests.chaos.histories import (
    GOOD,
    LONG_AGO,
    OTHER,
    PAUSED,
    QUEUED,
    RENEWED,
    RUNS,
    TICKS,
    TIMED_OUT,
    WORKER,
    again,
    among,
    changes,
    fired,
    keyed,
    leases,
    lost,
    moved,
    running,
    skipped,
    swap,
    with_lines,
)
from tests.chaos.history import (
    Attempt,
    Entry,
    Exit,
    Halt,
    History,
    KindChange,
    LeaseChange,
    Sighting,
    Slots,
)

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
    (9, "ended with status 1", lambda: replace(GOOD, exits=[Exit(100, 1, True, 40.0, started=False)])),
    (9, "nobody told it to", lambda: replace(GOOD, exits=[Exit(100, 0, False, 40.0)])),
    (1, "was running until", lambda: lost(500.0)),
    (1, "was running until", lambda: replace(lost(50.0), leases=[*lost(50.0).leases, *RENEWED])),
    (
        1,
        "after attempt 1 of 5, for killed",
        lambda: replace(GOOD, changes=[*GOOD.changes[:2], moved(3, 12.0, "running", "dead", 1, (1, 1))]),
    ),
    (2, "was written again", lambda: again(moved(6, 15.0, "succeeded", "succeeded", 2, (2, 2)))),
    (2, "from worker worker-b to worker-a", lambda: among(moved(9, 13.5, *RUNS, 2, (2, 2), old_worker=OTHER))),
    (2, "the progress of 'claim 1'", lambda: among(moved(9, 13.5, *RUNS, 2, (2, 2), told_by="claim 1"))),
    (2, "the result of claim 1", lambda: swap(4, replace(GOOD.changes[4], result_claim=1))),
    (2, "its handler never started", lambda: replace(GOOD, diary=GOOD.diary[:1])),
    (2, "its handler never ended", lambda: replace(GOOD, diary=GOOD.diary[:2])),
    (2, "after its end", lambda: with_lines(Entry(13.2, 7, 1, 101, "thread", "beat"))),
    (2, "after its end", lambda: with_lines(Entry(99.0, 7, 1, 101, "thread", "beat"), attempts=[TIMED_OUT])),
    (2, "is not registered", lambda: replace(GOOD, leases=GOOD.leases[1:])),
    (3, "2 rows", lambda: replace(GOOD, attempts=[*GOOD.attempts, *GOOD.attempts])),
    (3, "no kill for killed", lambda: replace(GOOD, attempts=[replace(GOOD.attempts[0], is_kill=False)])),
    (
        3,
        "ended in order",
        lambda: replace(
            GOOD, attempts=[replace(GOOD.attempts[0], verdict="worker_lost")], exits=[Exit(100, 0, True, 11.9)]
        ),
    ),
    (4, "that had ended", lambda: leases(LeaseChange(1, 9, WORKER, 100, 15), LeaseChange(2, 20, WORKER, 100, 50))),
    (
        4,
        "was found lost",
        lambda: leases(LeaseChange(1, 9, WORKER, 100, 30), LeaseChange(2, 20, WORKER, 100, 30, True)),
    ),
    (4, "was claimed at", lambda: leases(LeaseChange(1, 9.0, WORKER, 100, 11.9), diary=GOOD.diary[:1])),
    (
        4,
        "ended as succeeded",
        lambda: leases(
            LeaseChange(1, 9.0, WORKER, 100, 13.6), changes=[*GOOD.changes[:4], replace(GOOD.changes[4], at=17.6)]
        ),
    ),
    (
        5,
        "all queued",
        lambda: changes(
            QUEUED,
            keyed(2, 11.0, None, "queued", 8),
            keyed(3, 12.0, None, "queued", 9),
            replace(QUEUED, seq=4, at=12.000001, job=10, xid=5),
            keyed(5, 12.000002, "queued", "cancelled", 9),
        ),
    ),
    (
        6,
        "the handler of job 7",
        lambda: replace(
            GOOD,
            kinds=[KindChange(1, 13.05, "work", True)],
            diary=[GOOD.diary[0], *(Entry(17.1, 7, 2, 102, "child", event) for event in ("start", "effect"))],
            changes=[*GOOD.changes[:4], replace(GOOD.changes[4], at=18.0)],
        ),
    ),
    (7, "as job 13", lambda: again(fired(12, 50.1, 50), fired(13, 50.2, 50))),
    (7, "passed over 9 points", lambda: skipped()),
    (7, "passed over 9 points", lambda: skipped(outages=[(55.5, 70.0)])),
    (7, "passed over 349 points", lambda: skipped(fired(14, 410.1, 410), outages=[(0.0, 999.0)])),
    (7, "passed over 39 points", lambda: skipped(fired(14, 100.1, 100), outages=[(0.0, 999.0)], leases=RENEWED)),
    (
        8,
        "helper 103 of supervisor 100, which was killed",
        lambda: replace(
            GOOD, sightings=[Sighting(103, "helper", 100, 11.2, 612.0, 7, 1)], halts=[Halt(100, 11.9, float("inf"))]
        ),
    ),
    (8, "is of no claim", lambda: replace(GOOD, sightings=[Sighting(103, "child", 100, 11.2, 612.0)])),
    (8, "it has 6 slots", lambda: replace(GOOD, slots=[Slots("ingest", 6, 9)])),
    (
        8,
        "child 102 of supervisor 100",
        lambda: replace(GOOD, sightings=[Sighting(102, "child", 100, 13.1, 600.0, 7)], halts=[LONG_AGO]),
    ),
    (8, "not reaped", lambda: replace(GOOD, sightings=[Sighting(102, "zombie", 100, 13.1, 600.0)], halts=[LONG_AGO])),
    *(
        (9, f"status {status}", lambda status=status: replace(GOOD, exits=[Exit(100, status, False, 40.0)]))  # type: ignore[misc]
        for status in (1, -11, -15)
    ),
    (9, "status 1", lambda: replace(GOOD, exits=[Exit(100, 1, False, 140.0)], halts=[LONG_AGO])),
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


def test_what_explains_a_late_write_or_a_missing_point_is_no_violation() -> None:
    assert check(lost(16.0)) == []
    thread = with_lines(Entry(13.2, 7, 1, 101, "thread", "beat"), attempts=[TIMED_OUT])
    assert check(thread) == []  # it can only be disowned
    assert [v.text for v in check(skipped(outages=[(50.5, 60.0)])) if "passed over" in v.text] == []
    busy = [replace(fired(12, 50.1, 50), schedule="skipping"), replace(fired(13, 60.1, 60), schedule="skipping")]
    told = replace(GOOD, changes=[*GOOD.changes, *busy], grids={"skipping": 1.0}, skipping=frozenset({"skipping"}))
    assert [v.text for v in check(told) if "passed over" in v.text] == []  # the one of 50 is still queued
    asked = Exit(100, -9, False, 40.0, frozenset({9}))
    assert check(replace(GOOD, exits=[asked])) == []
    troubles = [Halt(100, 30.0, 35.0)]
    assert check(replace(GOOD, exits=[Exit(100, 75, False, 40.0)], troubles=troubles)) == []
    assert check(replace(GOOD, exits=[Exit(100, 1, True, 40.0, started=False)], troubles=troubles)) == []
