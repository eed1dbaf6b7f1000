"""Invariants 4 to 9: what must not happen at the same time, or too late."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from tests.chaos.checks_of_jobs import RECOVERY_SECONDS, moment
from tests.chaos.history import History, KindChange, LeaseChange, Sighting, Span

PAUSE_SECONDS = 1.0  # from the commit of a pause until nothing of the kind starts any more
LEFTOVER_SECONDS = 5.0
ORPHAN_SECONDS = 1.0  # that a child may outlive its supervisor
ZOMBIE_SECONDS = 2.0
SILENT_SECONDS = 15.0  # of a schedule, once everything is healed
SAME = 1e-5  # two moments of one transaction, as floating point holds them


def no_work_without_a_lease(history: History) -> Iterator[str]:
    """A lease that was lost stays lost, and no attempt lives past the lease of its worker."""
    by_worker: dict[str, list[LeaseChange]] = defaultdict(list)
    for lease in sorted(history.leases, key=lambda lease: lease.seq):
        earlier = by_worker[lease.worker][-1:]
        if any((old.lost and lease.until > old.until) or old.deleted for old in earlier):
            yield f"worker {lease.worker} renewed at {moment(lease.at)} a lease that was gone"
        by_worker[lease.worker].append(lease)
    times = defaultdict(list, {worker: [lease.at for lease in leases] for worker, leases in by_worker.items()})
    spans = {(span.job, span.claim): span for span in history.spans()}
    told = set()
    for line in history.diary:
        span = spans.get((line.job, line.claim))
        if span is None or span.worker is None or line.mode == "thread" or (line.job, line.claim) in told:
            continue
        place = bisect_right(times[span.worker], line.at)
        held = by_worker[span.worker][place - 1] if place else None
        if held is not None and (held.deleted or line.at > held.until):
            if history.is_halted(held.pid, line.at, RECOVERY_SECONDS):
                continue  # a stopped supervisor can stop nothing; the fence holds instead
            told.add((line.job, line.claim))
            yield (
                f"job {line.job} claim {line.claim} worked at {moment(line.at)}; the lease of its worker "
                f"{span.worker} (pid {held.pid}) ended at {moment(held.until)}"
            )


def one_at_a_time(history: History) -> Iterator[str]:
    """Of each concurrency key one job runs; of each dedupe key one is queued, or alive with `dedupe_active`."""
    by_key: dict[str, list[Span]] = defaultdict(list)
    for span in history.spans():
        if span.key is not None:
            by_key[span.key].append(span)
    for key, spans in by_key.items():
        spans.sort(key=lambda span: span.began)
        for first, second in pairwise(spans):
            if first.ended is None or first.ended > second.began + SAME:
                yield (
                    f"jobs {first.job} and {second.job} of key {key} ran at once: from {moment(first.began)} to "
                    f"{moment(first.ended)}, and from {moment(second.began)}"
                )
    yield from _copies(history)


def _copies(history: History) -> Iterator[str]:
    status: dict[tuple[str, str], dict[int, tuple[str | None, bool]]] = defaultdict(dict)
    changes = sorted(history.changes, key=lambda change: (change.at, change.seq))
    for place, change in enumerate(changes):
        if change.dedupe_key is None:
            continue
        copies = status[change.kind, change.dedupe_key]
        copies[change.job] = (change.new, change.dedupe_active)
        if place + 1 < len(changes) and abs(changes[place + 1].at - change.at) < SAME:
            continue  # the same transaction goes on
        queued = sorted(job for job, (now, _) in copies.items() if now == "queued")
        active = sorted(job for job, (now, counts) in copies.items() if now in ("queued", "running") and counts)
        for jobs, what in ((queued, "queued"), (active, "alive with dedupe_active")):
            if len(jobs) > 1:
                yield f"jobs {jobs} of dedupe key {change.dedupe_key} were all {what} at {moment(change.at)}"


def a_pause_holds(history: History) -> Iterator[str]:
    """From a second after a pause until its end, nothing of the kind starts but the one probe that was asked for."""
    by_kind: dict[str, list[KindChange]] = defaultdict(list)
    for change in sorted(history.kinds, key=lambda change: change.seq):
        before = by_kind[change.kind][-1:]
        if before and None not in (before[0].probe_job, change.probe_job) and before[0].probe_job != change.probe_job:
            yield f"kind {change.kind} sent job {change.probe_job} beside its probe {before[0].probe_job}"
        by_kind[change.kind].append(change)
    for span in history.spans():
        since: float | None = None
        probes: set[int | None] = set()
        for change in by_kind[span.kind]:
            if change.at > span.began + SAME:
                break
            since = (since or change.at) if change.paused else None
            if abs(change.at - span.began) < SAME:
                probes.add(change.probe_job)  # the claim itself marks its probe
        if since is not None and span.began > since + PAUSE_SECONDS and span.job not in probes:
            yield (
                f"job {span.job} claim {span.claim} of kind {span.kind} started at {moment(span.began)}; the kind was "
                f"paused at {moment(since)}"
            )


def occurrences_fire_once(history: History) -> Iterator[str]:
    """Each point of a schedule's grid is one job at most, in order, and firing goes on once everything is healed."""
    by_schedule: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for change in history.changes:
        if change.old is None and change.schedule is not None and change.occurrence is not None:
            by_schedule[change.schedule].append((change.at, change.occurrence, change.job))
    for schedule, every in history.grids.items():
        fired = sorted(by_schedule[schedule])
        for (_, occurrence, job), (at, following, other) in pairwise(fired):
            if following <= occurrence + SAME:
                yield (
                    f"schedule {schedule} fired {moment(following)} as job {other} at {moment(at)}, after "
                    f"{moment(occurrence)} as job {job}"
                )
        for at, occurrence, job in fired:
            if abs(occurrence / every - round(occurrence / every)) > SAME or occurrence > at:
                yield f"schedule {schedule} fired {moment(occurrence)} as job {job}: not a point of its grid by then"
        if history.drained_at < float("inf") and (not fired or fired[-1][0] < history.drained_at - SILENT_SECONDS):
            last = fired[-1][0] if fired else None
            yield f"schedule {schedule} fired last at {moment(last)}; the drain ended at {moment(history.drained_at)}"


def no_leftovers(history: History) -> Iterator[str]:
    """No process of a job outlives its verdict for long, no child its supervisor; zombies are reaped, slots free."""
    spans = {(span.job, span.claim): span for span in history.spans()}
    pids = history.pid_of()
    claims = {(line.job, line.pid): line.claim for line in history.diary}
    for sighting in history.sightings:
        claim = sighting.claim if sighting.claim is not None else claims.get((sighting.job or 0, sighting.pid))
        span = spans.get((sighting.job or 0, claim or 0))
        owner = sighting.owner or pids.get((span.worker if span else None) or "", 0)
        seen = replace(sighting, owner=owner)
        if not _was_halted(history, seen):
            yield from _is_leftover(history, seen, span)
    for pool in history.slots:
        if pool.most < pool.expected:
            yield f"pool {pool.pool} ran {pool.most} jobs at once after the drain; it has {pool.expected} slots"


def _is_leftover(history: History, seen: Sighting, span: Span | None) -> Iterator[str]:
    who = f"{seen.what} {seen.pid} of supervisor {seen.owner}"
    killed = next((h.since for h in history.halts if h.pid == seen.owner and h.until == float("inf")), None)
    if seen.what == "zombie":
        if seen.last - seen.first > ZOMBIE_SECONDS:
            yield f"{who} was not reaped from {moment(seen.first)} to {moment(seen.last)}"
    elif killed is not None and seen.last > killed:
        # What a child started outlives a killed supervisor until the next start finds it.
        if seen.what == "child" and seen.last > killed + ORPHAN_SECONDS:
            yield f"{who}, which was killed at {moment(killed)}, was alive at {moment(seen.last)}"
    elif span is not None and span.ended is not None and seen.last > span.ended + LEFTOVER_SECONDS:
        yield (
            f"{who} was alive at {moment(seen.last)}; its job {span.job} claim {span.claim} ended as {span.status} at "
            f"{moment(span.ended)}"
        )


def never_half_alive(history: History) -> Iterator[str]:
    """A supervisor that is told to end ends in order, and none ends as if in order without being told."""
    for end in history.exits:
        if end.asked and end.status != 0:
            yield f"supervisor {end.pid}, told to end, ended with status {end.status} at {moment(end.at)}"
        if not end.asked and end.status == 0:
            yield f"supervisor {end.pid} ended with status 0 at {moment(end.at)} although nobody told it to"


def _was_halted(history: History, seen: Sighting) -> bool:
    """Whether its supervisor was stopped just before or while it was seen: it may need time to catch up."""
    stops = [halt for halt in history.halts if halt.pid == seen.owner and halt.until < float("inf")]
    return any(stop.since <= seen.last and seen.first <= stop.until + LEFTOVER_SECONDS for stop in stops)
