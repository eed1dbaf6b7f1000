"""How a child ended, judged from evidence alone: no clock, no process, no file.

The order of evidence is the design's: what we meant to do, the child's last frame, the OOM counters, the wait
status. Signal 9 by itself proves nothing; a counter that covers the child and did not move proves that it was not
the kernel's OOM killer, because the kernel counts before it sends.
"""

import re
import signal
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_never

from jobs.outcome import (
    AttemptReport,
    Cancelled,
    Died,
    Failed,
    JobError,
    Outcome,
    ProcessFacts,
    Returned,
    Snoozed,
    Succeeded,
    Verdict,
)
from pools.evidence import Certainty, ChildEvidence, counters, kernel_killed
from pools.execution import Intent
from pools.frames import Failure, Snoozing, Success, Unborn
from pools.stacks import fatal_stack

SPAWN_RETRY = timedelta(seconds=5)  # long enough for a new template to be up, short enough not to be noticed

# Sent by people and by service managers, never by the kernel for what the process itself did.
_SENT_FROM_OUTSIDE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
# Whatever the child did, these are somebody's wish for the job.
_ASKED_FOR = frozenset({Intent.CANCEL, Intent.SHUTDOWN, Intent.PAUSED})
# The last words of native code that aborts because an allocation failed: C++, V8, Rust, glibc.
_LAST_WORDS = re.compile(
    r"std::bad_alloc|heap out of memory|memory allocation of \d+ bytes failed|annot allocate memory"
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """An outcome, how sure it is, and why in words. A success that needs no explanation has no `why`."""

    outcome: Outcome
    why: str = ""
    certainty: Certainty = Certainty.CERTAIN


def classify(evidence: ChildEvidence) -> AttemptReport:
    """The report of an attempt whose child has ended. Total: there is no evidence it has no answer for."""
    judgement = _judge(evidence)
    number = evidence.signal
    process = ProcessFacts(
        pid=evidence.pid,
        signal=None if number is None else signal_name(number),
        exit_code=evidence.exit_code,
        peak_memory_mb=evidence.peak_mb,
        memory_limit_mb=evidence.limit_mb,
        cpu_seconds=evidence.cpu_seconds,
        output_tail=evidence.output_tail,
    )
    if not (judgement.why or evidence.leftovers):
        return AttemptReport(judgement.outcome, {}, process)
    facts: dict[str, Any] = {"certainty": str(judgement.certainty), "why": judgement.why or evidence.leftovers}
    facts |= {f"oom_kill_{name}": f"{was} -> {now}" for name, was, now in counters(evidence)}
    if evidence.intent is not None:
        facts["intent"] = str(evidence.intent)
    if evidence.broken_frame is not None:
        facts["broken_frame"] = evidence.broken_frame
    if evidence.cgroup_peak_mb is not None:
        facts["cgroup_peak_mb"] = round(evidence.cgroup_peak_mb, 1)
    if evidence.survives:
        facts["survives"] = "the process survives SIGKILL; its slot stays closed until it is gone"
    elif evidence.leftovers:
        facts["survives"] = f"{evidence.leftovers}; its slot stays closed until they are gone"
    return AttemptReport(judgement.outcome, facts, process)


def signal_name(number: int) -> str:
    """`SIGSEGV`; real-time signals have no name of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _judge(evidence: ChildEvidence) -> Judgement:
    # With its lease the job may have passed to another worker: whatever ours achieved is not ours to report.
    if evidence.intent is Intent.LEASE_LOST:
        return Judgement(
            Returned(Verdict.LEASE_LOST, "the lease was lost"), "we ended it: this worker's lease was lost"
        )
    if isinstance(evidence.frame, Success):
        return _success(evidence, evidence.frame)
    if not evidence.has_started and evidence.frame is None and evidence.intent not in _ASKED_FOR:
        how = f"was ended by us ({evidence.intent})" if evidence.intent is not None else _how(evidence)
        why = f"its child {how} before it began with the job"
        return Judgement(Returned(Verdict.SPAWN_FAILED, why, SPAWN_RETRY), why)
    if evidence.intent is not None:
        return _intended(evidence, evidence.intent)
    match evidence.frame:
        case Failure() as failure:
            return _failure(evidence, failure)
        case Snoozing(seconds=seconds):
            return Judgement(Snoozed(_delay(seconds)), "the handler asked for it")
        case Unborn(why=why):
            return Judgement(Returned(Verdict.SPAWN_FAILED, why, SPAWN_RETRY), why)
        case None:
            return _death(evidence)
        case _:
            assert_never(evidence.frame)


def _success(evidence: ChildEvidence, frame: Success) -> Judgement:
    outcome = Succeeded(frame.result, frame.completed_in)
    if evidence.intent is not None:
        return Judgement(outcome, f"its result was complete before our {evidence.intent} reached it")
    if evidence.status != 0 and evidence.status is not None:
        return Judgement(outcome, f"its result was complete; afterwards the process {_how(evidence)}")
    if evidence.is_at_limit:
        # Nothing tells us of a MemoryError that the handler swallowed, except how close to the limit it came. So one
        # huge allocation that was refused at once, far below the limit, is a success like any other.
        why = f"warning: it came close to its limit, so an allocation may have failed unnoticed; {evidence.memory}"
        return Judgement(outcome, why, Certainty.LIKELY)
    return Judgement(outcome)


def _intended(evidence: ChildEvidence, intent: Intent) -> Judgement:
    match intent:
        case Intent.DEADLINE:
            where = "" if evidence.stacks else "; its stacks could not be had"
            why = f"stopped at its deadline of {evidence.timeout.total_seconds():g} s{where}; {evidence.memory}"
            return _died(Verdict.TIMED_OUT, "TimedOut", why, frames=evidence.stacks)
        case Intent.MEMORY:
            used = "" if evidence.last_mb is None else f" ({evidence.last_mb:.0f} MB)"
            why = f"the job's processes together went over the limit of {evidence.limit_mb} MB{used} and we killed them"
            return _died(Verdict.MEMORY_EXCEEDED, "MemoryExceeded", why)
        case Intent.CANCEL:
            return Judgement(Cancelled(), "cancelled by an operator")
        case Intent.SHUTDOWN:
            return Judgement(
                Returned(Verdict.RELEASED, "the worker shut down"), "we ended it: the worker shut down first"
            )
        case Intent.PAUSED:
            why = "its kind was paused before it started"
            return Judgement(Returned(Verdict.RELEASED, why), f"we ended it: {why}")
        case Intent.PROCESSES:
            why = f"{evidence.over or 'it had too many processes'}, and we killed them; {evidence.memory}"
            return _died(Verdict.MEMORY_EXCEEDED, "TooManyProcesses", why)
        case Intent.SCRATCH:
            # What a full disk would have been to the handler: an error, not a death.
            why = f"{evidence.over or 'its scratch folder was full'}, and we killed it"
            return Judgement(Failed(JobError("ScratchFull", why)), why)
        case Intent.UNSTARTED:
            why = "its child was late to begin with the job"  # and told so, after we had begun to kill it
            return Judgement(Returned(Verdict.SPAWN_FAILED, why, SPAWN_RETRY), why)
        case Intent.LEASE_LOST:
            raise AssertionError("judged before")
        case _:
            assert_never(intent)


def _failure(evidence: ChildEvidence, frame: Failure) -> Judgement:
    kernel = kernel_killed(evidence, helper=True)
    error = JobError(frame.type, frame.message, frame.frames)
    if kernel.moved and (frame.lost_helper or kernel.is_ours_alone):
        why = f"the handler raised {frame.type} after the kernel's OOM killer took one of its processes; {kernel.text}"
        return _died(Verdict.OOM_KILLED, frame.type, _after(frame.message, why), kernel.certainty, frame.frames)
    if frame.lost_helper and kernel.moved is False:
        return Judgement(
            Failed(error, frame.permanent),
            f"{frame.memory}, but {kernel.text}",
            kernel.certainty,
        )
    if frame.memory:
        is_told = frame.memory in frame.message.lower()
        told = _after(frame.message, evidence.memory if is_told else f"{frame.memory}; {evidence.memory}")
        certainty = Certainty.UNKNOWN if frame.lost_helper else Certainty.CERTAIN
        return _died(Verdict.MEMORY_EXCEEDED, frame.type, told, certainty, frame.frames)
    return Judgement(Failed(error, frame.permanent), "the handler raised")


def _death(evidence: ChildEvidence) -> Judgement:
    number = evidence.signal
    if evidence.survives:
        return _died(Verdict.KILLED, "Stuck", "it cannot be killed", Certainty.UNKNOWN)
    if evidence.status is None:
        why = "it ended without a result, and another waiter in the supervisor took its exit status"
        return _died(Verdict.VANISHED, "Vanished", why, Certainty.UNKNOWN)
    if number == signal.SIGKILL:
        return _sigkill(evidence)
    if number is None:
        verdict, name = (Verdict.EXITED, "Exited") if evidence.exit_code else (Verdict.VANISHED, "Vanished")
        why = f"{_how(evidence)} without a result"
        if evidence.broken_frame is not None:
            why += f": {evidence.broken_frame}"
        return _died(verdict, name, f"{why}; {evidence.memory}")
    if number in _SENT_FROM_OUTSIDE:
        why = f"killed by {signal_name(number)} that the supervisor did not send; {evidence.memory}"
        return _died(Verdict.KILLED, signal_name(number), why)
    words = _LAST_WORDS.search(evidence.output_tail)
    stack = fatal_stack(evidence.output_tail)
    if evidence.is_at_limit or words:
        sign = f' after writing "{words[0]}"' if words else " at its memory limit"
        return _died(
            Verdict.MEMORY_EXCEEDED,
            "MemoryExceeded",
            f"{_how(evidence)}{sign}; {evidence.memory}",
            Certainty.LIKELY,
            stack,
        )
    return _died(Verdict.CRASHED, signal_name(number), f"{_how(evidence)}; {evidence.memory}", frames=stack)


def _sigkill(evidence: ChildEvidence) -> Judgement:
    kernel = kernel_killed(evidence, helper=False)
    why = f"killed by SIGKILL that the supervisor did not send; {kernel.text}; {evidence.memory}"
    verdict, name = (Verdict.OOM_KILLED, "OomKilled") if kernel.moved else (Verdict.KILLED, "Killed")
    return _died(verdict, name, why, kernel.certainty)


def _how(evidence: ChildEvidence) -> str:
    number = evidence.signal
    if evidence.status is None:
        return "ended, nobody knows how,"
    if number is None:
        return f"exited with code {evidence.exit_code}"
    return f"ended by {signal_name(number)}"


def _after(message: str, why: str) -> str:
    return f"{message} ({why})" if message else why


def _died(
    verdict: Verdict, name: str, why: str, certainty: Certainty = Certainty.CERTAIN, frames: str = ""
) -> Judgement:
    return Judgement(Died(verdict, JobError(name, why, frames)), why, certainty)


def _delay(seconds: float) -> timedelta:
    return timedelta(seconds=min(seconds, timedelta(days=3650).total_seconds()))  # a timedelta can overflow
