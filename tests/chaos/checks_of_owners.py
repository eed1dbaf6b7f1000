"""Invariants 2 and 4: who may write and work, and until when."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from tests.chaos.checks_of_jobs import REFUNDS, moment
from tests.chaos.history import Change, Entry, History, LeaseChange, Span

ENDED = ("succeeded", "dead", "cancelled")
DISOWNED = {"timed_out", "cancelled", "released", "lease_lost", "worker_lost"}  # while the handler was still at work
# An INSERT that a killed process had already sent may still be executed by its session, just after the verdict.
IN_FLIGHT_SECONDS = 0.3
RECOVERY_SECONDS = 2.0  # of a supervisor that was stopped: until it has seen what happened meanwhile and acted on it
THREAD_SECONDS = 10.0  # the longest that a handler of a plan lives
COMMIT_SECONDS = 1.0  # from the look of a statement at the lease to its commit
CALL_SECONDS = 3.0  # an outcome that was sent under the lease may take as long as a call of the worker


def one_owner(history: History) -> Iterator[str]:
    """A claim is taken once, started once by its owner, ended once, and nothing of it works after its end."""
    for changes in history.by_job().values():
        yield from _claims_grow(changes)
        for change in changes:
            yield from _is_of_its_claim(change)
    spans = history.span_of()
    yield from _was_run(history, spans)
    verdicts = history.verdicts()
    starts = Counter((line.job, line.claim) for line in history.diary if line.event == "start")
    for (job, claim), times in starts.items():
        if times > 1:
            yield f"job {job} claim {claim} was started {times} times"
    told = set()
    for line in history.diary:
        span = spans.get((line.job, line.claim))
        if (line.job, line.claim) in told:
            continue
        if span is None or line.at < span.began - IN_FLIGHT_SECONDS:
            told.add((line.job, line.claim))
            yield f"job {line.job} claim {line.claim} ran in process {line.pid} at {moment(line.at)}, before its claim"
        elif _is_late(history, line, span, verdicts.get((line.job, line.claim))):
            told.add((line.job, line.claim))
            yield (
                f"job {line.job} claim {line.claim} of worker {span.worker} still ran in process {line.pid} at "
                f"{moment(line.at)}, after its end ({span.status}) at {moment(span.ended)}"
            )
    yield from _effects_once(history, spans)


def _is_late(history: History, line: Entry, span: Span, verdict: str | None) -> bool:
    if span.ended is None or line.at <= span.ended + IN_FLIGHT_SECONDS:
        return False
    recovery = RECOVERY_SECONDS
    if line.mode == "thread":  # that can only be disowned: a limit that DESIGN states
        if verdict in DISOWNED and line.at <= span.ended + THREAD_SECONDS:
            return False
        recovery += THREAD_SECONDS
    return not history.is_halted(history.pid_of().get(span.worker or ""), line.at, recovery)


def _is_of_its_claim(change: Change) -> Iterator[str]:
    """No write changes what is over, gives a running job to another worker, or tells of another claim."""
    what = f"job {change.job} claim {change.claim}"
    when = f"at {moment(change.at)} by {change.writer}"
    if change.old in ENDED and change.new == change.old:
        yield f"{what} was written again {when}, after its end as {change.old}"
    if change.old == "running" and change.new in ("running", *ENDED) and change.old_worker not in (None, change.worker):
        yield f"{what} went from worker {change.old_worker} to {change.worker} {when} without a claim"
    if change.new == "running" and change.told_by not in (None, f"claim {change.claim}"):
        yield f"{what} was given the progress of {change.told_by!r} {when}"
    if change.new == "succeeded" and change.result_claim not in (None, change.claim):
        yield f"{what} was given the result of claim {change.result_claim} {when}"


def _was_run(history: History, spans: Mapping[tuple[int, int], Span]) -> Iterator[str]:
    """A worker that is registered took the claim, and a success is of a handler that came to its end."""
    events: dict[tuple[int, int], set[str]] = defaultdict(set)
    for line in history.diary:
        events[line.job, line.claim].add(line.event)
    for (job, claim), span in spans.items():
        lived = events[job, claim]
        if history.lease_at(span.worker, span.began) is None:
            yield f"job {job} claim {claim} was taken at {moment(span.began)} by {span.worker}, which is not registered"
        if span.status == "succeeded" and ("start" not in lived or not lived & {"end", "effect"}):
            did = "started" if "start" not in lived else "ended"
            yield f"job {job} claim {claim} succeeded at {moment(span.ended)}; its handler never {did}"


def _claims_grow(changes: list[Change]) -> Iterator[str]:
    for change in changes:
        begins = change.old != "running" and change.new == "running"
        if change.old_claim is not None and change.claim != change.old_claim + begins:
            yield (
                f"job {change.job} went from claim {change.old_claim} to {change.claim} as it became {change.new} at "
                f"{moment(change.at)}"
            )


def _effects_once(history: History, spans: dict[tuple[int, int], Span]) -> Iterator[str]:
    """What a handler wrote together with `complete_in` exists exactly where its claim succeeded."""
    effects = Counter(history.effects)
    for (job, claim), times in effects.items():
        span = spans.get((job, claim))
        if times > 1 or span is None or span.status != "succeeded":
            yield f"job {job} claim {claim} has {times} effects and ended as {span.status if span else 'unknown'}"
    for span in spans.values():
        if span.job in history.effect_jobs and span.status == "succeeded" and (span.job, span.claim) not in effects:
            yield f"job {span.job} claim {span.claim} succeeded at {moment(span.ended)} without its effect"


def no_work_without_a_lease(history: History) -> Iterator[str]:
    """A lease that is over stays over, and under it nothing is claimed, ended or worked at."""
    for leases in history.leases_of.values():
        yield from _stays_over(leases)
    spans = history.span_of()
    verdicts = history.verdicts()
    for span in spans.values():
        yield from _is_under_its_lease(history, span, verdicts.get((span.job, span.claim), "succeeded"))
    told = set()
    for line in history.diary:
        worked = spans.get((line.job, line.claim))
        if worked is None or line.mode == "thread" or (line.job, line.claim) in told:
            continue
        held = history.lease_at(worked.worker, line.at)
        if held is not None and (held.deleted or line.at > held.until):
            if history.is_halted(held.pid, line.at, RECOVERY_SECONDS):
                continue  # a stopped supervisor can stop nothing; the fence holds instead
            told.add((line.job, line.claim))
            yield (
                f"job {line.job} claim {line.claim} worked at {moment(line.at)}; the lease of its worker "
                f"{worked.worker} (pid {held.pid}) ended at {moment(held.until)}"
            )


def _stays_over(leases: list[LeaseChange]) -> Iterator[str]:
    for old, new in pairwise(leases):
        renewed = new.until > old.until
        if (old.lost and renewed) or old.deleted:
            yield f"worker {new.worker} renewed at {moment(new.at)} a lease that was gone"
        elif renewed and new.at > old.until + COMMIT_SECONDS:
            yield f"worker {new.worker} renewed at {moment(new.at)} a lease that had ended at {moment(old.until)}"
        if new.lost and not old.lost and new.at < old.until:
            yield f"worker {new.worker} was found lost at {moment(new.at)}; its lease ended at {moment(old.until)}"


def _is_under_its_lease(history: History, span: Span, verdict: str) -> Iterator[str]:
    """Others settle what was lost, and a refund is offered until it is answered: the fence decides about both."""
    who = f"job {span.job} claim {span.claim} of worker {span.worker}"
    lease = history.lease_at(span.worker, span.began)
    if lease is not None and span.began > lease.until + COMMIT_SECONDS:
        yield f"{who} was claimed at {moment(span.began)}; the lease ended at {moment(lease.until)}"
    if span.ended is None or verdict in REFUNDS or verdict == "worker_lost":
        return
    lease = history.lease_at(span.worker, span.ended)
    is_late = lease is not None and span.ended > lease.until + CALL_SECONDS
    if lease is not None and is_late and not history.is_hindered(lease.pid, lease.until, span.ended):
        yield f"{who} ended as {span.status} at {moment(span.ended)}; the lease ended at {moment(lease.until)}"
