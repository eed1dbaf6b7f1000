"""Invariants 1 to 3: what the journal of every job must look like."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from tests.chaos.history import Change, History, Span

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
# An INSERT that a killed process had already sent may still be executed by its session, just after the verdict.
IN_FLIGHT_SECONDS = 0.3
RECOVERY_SECONDS = 2.0  # of a supervisor that was stopped: until it has seen what happened meanwhile and acted on it


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


def one_owner(history: History) -> Iterator[str]:
    """A claim is taken once, started once by its owner, ended once, and nothing of it works after its end."""
    for changes in history.by_job().values():
        yield from _claims_grow(changes)
    spans = {(span.job, span.claim): span for span in history.spans()}
    pids = history.pid_of()
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
        elif _is_late(history, line.mode, line.at, span, pids):
            told.add((line.job, line.claim))
            yield (
                f"job {line.job} claim {line.claim} of worker {span.worker} still ran in process {line.pid} at "
                f"{moment(line.at)}, after its end ({span.status}) at {moment(span.ended)}"
            )
    yield from _effects_once(history, spans)


def _is_late(history: History, mode: str, at: float, span: Span, pids: dict[str, int]) -> bool:
    if mode == "thread" or span.ended is None or at <= span.ended + IN_FLIGHT_SECONDS:
        return False  # a thread can only be disowned: a limit that DESIGN states
    return not history.is_halted(pids.get(span.worker or ""), at, RECOVERY_SECONDS)


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


def charged_once(history: History) -> Iterator[str]:
    """A claim costs one attempt; only a named refund gives it back; every end but a success has its one row."""
    for changes in history.by_job().values():
        for change in changes:
            yield from _is_charged(change)
    attempts = {(attempt.job, attempt.claim): attempt for attempt in history.attempts}
    spans = list(history.spans())
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
    known = {(span.job, span.claim) for span in spans}
    for job, claim in sorted(attempts.keys() - known):
        yield f"job {job} claim {claim} has a row of an attempt that was never claimed"
    losses = Counter((a.worker, a.kind) for a in history.attempts if a.verdict == "worker_lost" and a.is_kill)
    for (worker, kind), times in losses.items():
        if times > 1:
            yield f"the loss of worker {worker} counts as {times} kills of kind {kind}"


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
            right = gained in (0, -1)
        case "dead" | "cancelled", "queued":
            right = change.attempt == 0
        case _:
            right = gained == 0
    if not right:
        yield (
            f"job {change.job} went from {change.old_attempt} to {change.attempt} of {change.max_attempts} attempts as "
            f"it went from {change.old} to {change.new} at {moment(change.at)}"
        )
