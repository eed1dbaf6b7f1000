"""Invariants 8 and 9: what may be left of jobs and of supervisors."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from tests.chaos.checks_of_jobs import STANDSTILL_SECONDS, moment
from tests.chaos.history import History, Sighting, Span

LEFTOVER_SECONDS = 5.0
ORPHAN_SECONDS = 1.0  # that a child may outlive its supervisor
ZOMBIE_SECONDS = 2.0
HINDERED_SECONDS = 15.0  # after a trouble, within which a supervisor may have to end itself


def no_leftovers(history: History) -> Iterator[str]:
    """No process of a job outlives its verdict for long, no child its supervisor; zombies are reaped, slots free."""
    spans = history.span_of()
    by_job: dict[int, list[Span]] = defaultdict(list)
    for claimed in spans.values():
        by_job[claimed.job].append(claimed)
    pids = history.pid_of()
    claims = {(line.job, line.pid): line.claim for line in history.diary}
    for sighting in history.sightings:
        claim = sighting.claim if sighting.claim is not None else claims.get((sighting.job or 0, sighting.pid))
        span = spans.get((sighting.job or 0, claim or 0)) or _latest(by_job[sighting.job or 0], sighting.first)
        owner = sighting.owner or pids.get((span.worker if span else None) or "", 0)
        seen = replace(sighting, owner=owner)
        yield from _is_leftover(history, seen, span)
    for pool in history.slots:
        if pool.most != pool.expected:
            yield f"pool {pool.pool} ran {pool.most} jobs at once after the drain; it has {pool.expected} slots"


def _latest(spans: list[Span], by: float) -> Span | None:
    """The claim of a child that died before its first line."""
    return max((span for span in spans if span.began <= by), key=lambda span: span.claim, default=None)


def _is_leftover(history: History, seen: Sighting, span: Span | None) -> Iterator[str]:
    who = f"{seen.what} {seen.pid} of supervisor {seen.owner}"
    killed = min((h.since for h in history.halts if h.pid == seen.owner and h.until == float("inf")), default=None)
    if seen.what == "zombie":
        if seen.last > _at_the_latest(history, seen.owner, seen.first, ZOMBIE_SECONDS):
            yield f"{who} was not reaped from {moment(seen.first)} to {moment(seen.last)}"
    elif killed is not None and seen.last > killed:
        # What a child started outlives a killed supervisor until the next start finds it.
        if seen.last > killed + (ORPHAN_SECONDS if seen.what == "child" else STANDSTILL_SECONDS):
            yield f"{who}, which was killed at {moment(killed)}, was alive at {moment(seen.last)}"
    elif span is None:
        if seen.last > _at_the_latest(history, seen.owner, seen.first, LEFTOVER_SECONDS):
            yield f"{who} was alive from {moment(seen.first)} to {moment(seen.last)} and is of no claim"
    elif span.ended is not None and seen.last > _at_the_latest(history, seen.owner, span.ended, LEFTOVER_SECONDS):
        yield (
            f"{who} was alive at {moment(seen.last)}; its job {span.job} claim {span.claim} ended as {span.status} at "
            f"{moment(span.ended)}"
        )


def _at_the_latest(history: History, supervisor: int, since: float, seconds: float) -> float:
    """When it must be gone, where a supervisor that was stopped meanwhile has that time anew from then on."""
    latest = since + seconds
    for halt in sorted(history.halts, key=lambda halt: halt.since):
        if halt.pid == supervisor and halt.since <= latest and halt.until < float("inf"):
            latest = max(latest, halt.until + seconds)
    return latest


def never_half_alive(history: History) -> Iterator[str]:
    """A supervisor that is told to end ends in order, and none ends without being told, or by what nobody did to it."""
    for end in history.exits:
        hindered = history.is_hindered(end.pid, end.at - HINDERED_SECONDS, end.at)
        if end.asked and end.status != 0 and (end.started or not hindered):
            yield f"supervisor {end.pid}, told to end, ended with status {end.status} at {moment(end.at)}"
        if not end.asked and end.status == 0:
            yield f"supervisor {end.pid} ended with status 0 at {moment(end.at)} although nobody told it to"
        if -end.status in end.sent or (end.status > 0 and (end.asked or hindered)):
            continue
        if end.status != 0 and not end.asked:
            yield f"supervisor {end.pid} ended with status {end.status} at {moment(end.at)}; nobody had touched it"
