"""Invariants 1 and 3: what the journal of every job must look like, and what its attempts cost."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from jobs.outcome import Verdict
from tests.chaos.history import Attempt, Change, History, Span

# The status picture of DESIGN, section 4, with what an operator may do.
ALLOWED = {
    (None, "queued"),
    ("queued", "running"),
    ("queued", "cancelled"),
    ("queued", "dead"),  # a kind that no live worker knows
    ("running", "queued"),
    ("running", "succeeded"),
    ("running", "dead"),
    ("running", "cancelled"),
    ("dead", "queued"),  # an operator's retry
    ("cancelled", "queued"),
}
REFUNDS = {"released", "lease_lost", "spawn_failed", "snoozed"}
# From the end of a lease until others have settled its jobs, which takes a second: while any worker is there, and in
# all. A plan may have all of them down at once, and on a machine with other work the next one takes a minute to start.
SERVED_SECONDS = 20.0
STANDSTILL_SECONDS = 300.0
DEPLOY_SECONDS = 10.0  # before its end, a supervisor without trouble can give back whatever it runs


def moment(at: float | None) -> str:
    return "never" if at is None else datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]


def nothing_is_lost(history: History) -> Iterator[str]:
    """A committed job exists, moves only as the picture says, and is ended or claimable after the drain."""
    by_job = history.by_job()
    for job in sorted(history.enqueued - by_job.keys()):
        yield f"job {job} was committed and is not in the journal"
    for mark in sorted(history.rolled_back & history.marks):
        yield f"a job with mark {mark} exists although the transaction that enqueued it was rolled back"
    for job, changes in by_job.items():
        before: str | None = None
        for change in changes:
            if change.old != before or (change.old, change.new) not in ALLOWED | {(change.old, change.old)}:
                yield f"job {job} went from {change.old} to {change.new} at {moment(change.at)}; it was {before} before"
            before = change.new
        if before == "running" or (before == "queued" and changes[-1].kind not in history.endless_kinds):
            yield f"job {job} ({changes[-1].kind}) is still {before} after the drain, since {moment(changes[-1].at)}"
    verdicts = history.verdicts()
    for span in history.spans():
        yield from _is_rescued(history, span)
        verdict = verdicts.get((span.job, span.claim))
        if span.status == "dead" and verdict != "failed" and span.attempt < span.max_attempts:  # it may fail for good
            yield (
                f"job {span.job} claim {span.claim} is dead at {moment(span.ended)} after attempt {span.attempt} of "
                f"{span.max_attempts}, for {verdict}"
            )


def _is_rescued(history: History, span: Span) -> Iterator[str]:
    """Nothing runs for long under a lease that is over."""
    lease = history.lease_at(span.worker, span.ended or history.drained_at)
    if lease is None or span.ended is None or span.ended < lease.until + SERVED_SECONDS:
        return
    served = history.served(lease.until, span.ended)
    if served > SERVED_SECONDS or span.ended > lease.until + STANDSTILL_SECONDS:
        yield (
            f"job {span.job} claim {span.claim} was running until {moment(span.ended)}; the lease of its worker "
            f"{span.worker} ended at {moment(lease.until)}"
        )


def charged_once(history: History) -> Iterator[str]:
    """A claim costs one attempt; only a named refund gives it back; every end but a success has its one row."""
    for changes in history.by_job().values():
        for change in changes:
            yield from _is_charged(change)
    attempts = {(attempt.job, attempt.claim): attempt for attempt in history.attempts}
    for (job, claim), times in Counter((attempt.job, attempt.claim) for attempt in history.attempts).items():
        if times > 1:
            yield f"job {job} claim {claim} has {times} rows of its attempt"
    spans = list(history.spans())
    yield from _deploys_cost_nothing(history, spans, attempts)
    for span in spans:
        attempt = attempts.get((span.job, span.claim))
        if span.ended is None:
            continue
        where = f"job {span.job} claim {span.claim}, which ended as {span.status} at {moment(span.ended)},"
        if attempt is None:
            if span.status != "succeeded":
                yield f"{where} has no row of its attempt"
        elif (attempt.verdict == "succeeded") != (span.status == "succeeded"):
            yield f"{where} has the verdict {attempt.verdict}"
        elif attempt.charged == span.refunded or attempt.charged == (attempt.verdict in REFUNDS):
            charged = "charged" if attempt.charged else "not charged"
            yield f"{where} is {charged} for {attempt.verdict}, and its attempt was {_given_back(span)}"
        elif attempt.verdict != "worker_lost" and attempt.is_kill != Verdict(attempt.verdict).is_kill:
            yield f"{where} counts as {'a kill' if attempt.is_kill else 'no kill'} for {attempt.verdict}"
    known = {(span.job, span.claim) for span in spans}
    for job, claim in sorted(attempts.keys() - known):
        yield f"job {job} claim {claim} has a row of an attempt that was never claimed"
    losses = Counter((a.worker, a.kind) for a in history.attempts if a.verdict == "worker_lost" and a.is_kill)
    for (worker, kind), times in losses.items():
        if times > 1:
            yield f"the loss of worker {worker} counts as {times} kills of kind {kind}"


def _deploys_cost_nothing(
    history: History, spans: list[Span], attempts: dict[tuple[int, int], Attempt]
) -> Iterator[str]:
    """What a supervisor runs as it ends in order, with its lease and its way to the database, is not lost."""
    pids = history.pid_of()
    for end in history.exits:
        if not end.asked or end.status != 0 or history.is_hindered(end.pid, end.at - DEPLOY_SECONDS, end.at):
            continue
        for span in spans:
            attempt = attempts.get((span.job, span.claim))
            lease = history.lease_at(span.worker, end.at)
            if (
                pids.get(span.worker or "") == end.pid
                and span.began < end.at <= (span.ended or end.at)
                and attempt is not None
                and attempt.verdict == "worker_lost"
                and lease is not None
                and lease.until > end.at
            ):
                yield (
                    f"job {span.job} claim {span.claim} counts as worker_lost; its supervisor {end.pid} ended in order "
                    f"at {moment(end.at)}"
                )


def _given_back(span: Span) -> str:
    return "given back" if span.refunded else "kept"


def _is_charged(change: Change) -> Iterator[str]:
    if change.old is None or change.old_attempt is None:
        return
    gained = change.attempt - change.old_attempt
    match change.old, change.new:
        case _, "running" if change.old != "running":
            right = gained == 1 and change.attempt <= change.max_attempts
        case "running", _:
            right = gained in ((0,) if change.new == "running" else (0, -1))
        case "dead" | "cancelled", "queued":
            right = change.attempt == 0
        case _:
            right = gained == 0
    if not right:
        yield (
            f"job {change.job} went from {change.old_attempt} to {change.attempt} of {change.max_attempts} attempts as "
            f"it went from {change.old} to {change.new} at {moment(change.at)}"
        )
