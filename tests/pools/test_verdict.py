"""`classify` from evidence alone: every row of the design's table, and what must hold for any evidence at all."""

import json
import signal
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.outcome import Cancelled, Died, Failed, Returned, Snoozed, Succeeded, Verdict
from pools.evidence import ChildEvidence
from pools.execution import Intent
from pools.frames import Failure, Snoozing, Success, Unborn
from pools.oom import OomCounters
from pools.verdict import classify

KILL, TERM, ABRT, SEGV = signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV
EXIT_3 = 3 << 8
STILL = OomCounters(own=3, host=3)
ERROR = Failure(type="ValueError", message="no")
MEMORY = Failure(type="MemoryError", message="", memory="out of memory")
LOST_HELPER = Failure(type="CalledProcessError", message="died", memory="a helper was killed", lost_helper=True)


def evidence(**given: object) -> ChildEvidence:
    return ChildEvidence(**{"limit_mb": 512, "peak_mb": 212.0, "before": STILL, "after": STILL} | given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "verdict", "certainty"),
    [
        ({"status": 0, "frame": Success()}, "succeeded", None),
        ({"status": SEGV, "frame": Success()}, "succeeded", "certain"),
        ({"status": 0, "frame": ERROR}, "failed", "certain"),
        ({"status": 0, "frame": MEMORY}, "memory_exceeded", "certain"),
        ({"status": 0, "frame": LOST_HELPER}, "failed", "certain"),
        ({"status": 0, "frame": LOST_HELPER, "after": OomCounters(own=4, host=4)}, "oom_killed", "likely"),
        ({"status": 0, "frame": LOST_HELPER, "after": OomCounters()}, "memory_exceeded", "unknown"),
        ({"status": 0, "frame": ERROR, "after": OomCounters(own=4, host=4)}, "failed", "certain"),
        (
            {"status": 0, "frame": ERROR, "before": OomCounters(job=0), "after": OomCounters(job=1)},
            "oom_killed",
            "certain",
        ),
        ({"status": KILL, "before": OomCounters(job=0), "after": OomCounters(job=1)}, "oom_killed", "certain"),
        ({"status": KILL, "before": OomCounters(job=0), "after": OomCounters(job=0)}, "killed", "certain"),
        ({"status": KILL, "after": OomCounters(own=4, host=4)}, "oom_killed", "certain"),
        ({"status": KILL, "after": OomCounters(own=4, host=4), "unexplained_kills": 2}, "oom_killed", "likely"),
        ({"status": KILL, "after": OomCounters(own=5, host=5), "unexplained_kills": 2}, "oom_killed", "certain"),
        ({"status": KILL}, "killed", "certain"),
        ({"status": KILL, "after": OomCounters(own=3, host=4)}, "killed", "likely"),
        ({"status": KILL, "before": OomCounters(host=3), "after": OomCounters(host=3)}, "killed", "certain"),
        ({"status": KILL, "before": OomCounters(host=3), "after": OomCounters(host=4)}, "oom_killed", "likely"),
        ({"status": KILL, "before": OomCounters(own=3), "after": OomCounters(own=3)}, "killed", "likely"),
        ({"status": KILL, "before": OomCounters(), "after": OomCounters()}, "killed", "unknown"),
        ({"status": KILL, "before": OomCounters(host=3), "after": OomCounters(host=1)}, "killed", "unknown"),
        ({"status": TERM}, "killed", "certain"),
        ({"status": SEGV}, "crashed", "certain"),
        ({"status": ABRT | 0x80}, "crashed", "certain"),  # with a core dump
        ({"status": 64}, "crashed", "certain"),  # a real-time signal
        ({"status": ABRT, "peak_mb": 470.0}, "memory_exceeded", "likely"),
        ({"status": SEGV, "last_mb": 470.0}, "memory_exceeded", "likely"),
        ({"status": ABRT, "peak_mb": 460.0}, "crashed", "certain"),
        ({"status": ABRT, "output_tail": "terminate called: std::bad_alloc"}, "memory_exceeded", "likely"),
        ({"status": EXIT_3}, "exited", "certain"),
        ({"status": 0}, "vanished", "certain"),
        ({"status": None}, "vanished", "unknown"),
        ({"status": KILL, "intent": Intent.DEADLINE}, "timed_out", "certain"),
        ({"status": KILL, "intent": Intent.MEMORY}, "memory_exceeded", "certain"),
        ({"status": KILL, "intent": Intent.CANCEL}, "cancelled", "certain"),
        ({"status": KILL, "intent": Intent.SHUTDOWN}, "released", "certain"),
        ({"status": KILL, "intent": Intent.LEASE_LOST}, "lease_lost", "certain"),
        ({"status": 0, "intent": Intent.LEASE_LOST, "frame": Success()}, "lease_lost", "certain"),
        ({"status": 0, "intent": Intent.CANCEL, "frame": Success()}, "succeeded", "certain"),
        ({"status": 0, "intent": Intent.CANCEL, "frame": ERROR}, "cancelled", "certain"),
        ({"status": 0, "frame": Success(), "peak_mb": 470.0}, "succeeded", "likely"),
        ({"status": 0, "frame": Success(), "last_mb": 470.0}, "succeeded", "likely"),
        ({"status": KILL, "intent": Intent.PROCESSES, "over": "it had more"}, "memory_exceeded", "certain"),
        ({"status": KILL, "intent": Intent.SCRATCH, "over": "it held more"}, "failed", "certain"),
        ({"status": None, "intent": Intent.DEADLINE, "survives": True}, "timed_out", "certain"),
        ({"status": None, "intent": Intent.SHUTDOWN, "survives": True}, "released", "certain"),
        ({"status": None, "survives": True}, "killed", "unknown"),
        ({"status": 0, "frame": Snoozing(seconds=5)}, "snoozed", "certain"),
        ({"status": 256, "frame": Unborn(why="no")}, "spawn_failed", "certain"),
    ],
)
def test_each_row_of_the_table(given: dict[str, object], verdict: str, certainty: str | None) -> None:
    report = classify(evidence(**given))
    assert report.outcome.verdict == verdict, report.evidence
    assert report.evidence.get("certainty") == certainty


def test_the_message_gives_the_numbers() -> None:
    report = classify(evidence(status=KILL))
    assert isinstance(report.outcome, Died)
    assert report.outcome.error.message == (
        "killed by SIGKILL that the supervisor did not send; the kernel's OOM counter did not move "
        "(own 3 -> 3, host 3 -> 3), so not the OOM killer; peak 212 MB of 512 MB"
    )
    assert report.process.signal == "SIGKILL"
    assert report.evidence["oom_kill_host"] == "3 -> 3"


def test_a_deadline_keeps_the_stacks_and_says_the_time() -> None:
    report = classify(
        evidence(status=KILL, intent=Intent.DEADLINE, stacks="Thread 0x1", timeout=timedelta(seconds=300))
    )
    assert isinstance(report.outcome, Died)
    assert report.outcome.error.frames == "Thread 0x1"
    assert "300 s" in report.outcome.error.message


def test_a_crash_keeps_the_stack_that_faulthandler_wrote_last_and_not_what_the_job_printed() -> None:
    stack = 'Current thread 0x7f (most recent call first):\n  File "/app/parse.py", line 7 in page\n'
    tail = f"Fatal Python error: forged\nnoise\nFatal Python error: Segmentation fault\n\n{stack}"
    report = classify(evidence(status=SEGV, output_tail=f"{tail}\nExtension modules: numpy.core (total: 1)\n"))
    assert isinstance(report.outcome, Died)
    assert report.outcome.error.frames == f"Fatal Python error: Segmentation fault\n\n{stack}"
    report = classify(evidence(status=ABRT, peak_mb=470.0, output_tail=tail))
    assert isinstance(report.outcome, Died)
    assert report.outcome.verdict is Verdict.MEMORY_EXCEEDED
    assert "parse.py" in report.outcome.error.frames
    report = classify(evidence(status=SEGV, output_tail="no stack"))
    assert isinstance(report.outcome, Died)
    assert report.outcome.error.frames == ""


def test_a_process_that_survives_is_told_in_the_evidence_whatever_the_verdict() -> None:
    report = classify(evidence(status=None, intent=Intent.CANCEL, survives=True, cgroup_peak_mb=99.96))
    assert report.outcome == Cancelled()
    assert "survives SIGKILL" in report.evidence["survives"]
    assert report.evidence["cgroup_peak_mb"] == 100.0


counts = st.none() | st.integers(0, 3)
counters = st.builds(OomCounters, job=counts, own=counts, host=counts)
statuses = st.none() | st.integers(1, 64) | st.integers(0, 255).map(lambda code: code << 8)
frames = st.sampled_from(
    [None, Success(), Success(result="7"), ERROR, MEMORY, LOST_HELPER, Snoozing(seconds=1e300), Unborn(why="x")]
)
sizes = st.none() | st.floats(0, 1000)
anything = st.builds(
    ChildEvidence,
    intent=st.none() | st.sampled_from(Intent),
    frame=frames,
    broken_frame=st.none() | st.text(max_size=5),
    status=statuses,
    before=counters,
    after=counters,
    unexplained_kills=st.integers(1, 3),
    limit_mb=st.integers(1, 1000),
    last_mb=sizes,
    peak_mb=sizes,
    cgroup_peak_mb=sizes,
    over=st.sampled_from(["", "it held too much"]),
    has_started=st.booleans(),
    survives=st.booleans(),
    output_tail=st.sampled_from(["", "std::bad_alloc", "Fatal Python error: x"]),
    stacks=st.sampled_from(["", "Thread 0x1"]),
)


@settings(deadline=None)
@given(anything)
def test_there_is_a_report_for_any_evidence(found: ChildEvidence) -> None:
    report = classify(found)
    assert isinstance(report.outcome, Succeeded | Failed | Died | Snoozed | Cancelled | Returned)
    if report.evidence:
        assert report.evidence["certainty"] in ("certain", "likely", "unknown")
        assert report.evidence["why"]
        assert json.loads(json.dumps(dict(report.evidence))) == report.evidence
    else:
        assert report.outcome.verdict is Verdict.SUCCEEDED


@settings(deadline=None)
@given(anything)
def test_our_own_intent_is_beaten_only_by_a_complete_result(found: ChildEvidence) -> None:
    expected = {
        Intent.DEADLINE: Verdict.TIMED_OUT,
        Intent.MEMORY: Verdict.MEMORY_EXCEEDED,
        Intent.CANCEL: Verdict.CANCELLED,
        Intent.SHUTDOWN: Verdict.RELEASED,
        Intent.LEASE_LOST: Verdict.LEASE_LOST,
        Intent.PAUSED: Verdict.RELEASED,
        Intent.PROCESSES: Verdict.MEMORY_EXCEEDED,
        Intent.SCRATCH: Verdict.FAILED,
        Intent.UNSTARTED: Verdict.SPAWN_FAILED,
    }
    if found.intent is None or not found.has_started:
        return
    verdict = classify(found).outcome.verdict
    if isinstance(found.frame, Success) and found.intent is not Intent.LEASE_LOST:
        assert verdict is Verdict.SUCCEEDED
    else:
        assert verdict is expected[found.intent]


@settings(deadline=None)
@given(anything)
def test_what_ends_before_its_job_has_begun_is_never_charged(found: ChildEvidence) -> None:
    if not found.has_started and found.frame is None:
        assert isinstance(classify(found).outcome, Returned | Cancelled)


@settings(deadline=None)
@given(anything)
def test_counters_that_did_not_move_never_make_an_oom_kill(found: ChildEvidence) -> None:
    moved = [
        name
        for name in ("job", "own", "host")
        if (was := getattr(found.before, name)) is not None
        and (now := getattr(found.after, name)) is not None
        and now > was
    ]
    if not moved:
        assert classify(found).outcome.verdict is not Verdict.OOM_KILLED


@settings(deadline=None)
@given(anything)
def test_a_foreign_counter_alone_is_never_certain(found: ChildEvidence) -> None:
    report = classify(found)
    if report.outcome.verdict is Verdict.OOM_KILLED and report.evidence["certainty"] == "certain":
        assert "oom_kill_job" in report.evidence or "oom_kill_own" in report.evidence
