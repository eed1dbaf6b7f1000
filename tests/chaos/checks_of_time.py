"""Invariants 5 to 7: what must not happen at the same time, twice, or not at all."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby, pairwise

from tests.chaos.checks_of_jobs import SERVED_SECONDS, STANDSTILL_SECONDS, moment
from tests.chaos.history import Change, History, KindChange, Span

PAUSE_SECONDS = 1.0  # from the commit of a pause until nothing of the kind starts any more
BIRTH_SECONDS = 2.0  # from the worker's last look at the kind to the first line that a handler has committed
LATE_SECONDS = 3.0  # that a tick may be late on a machine with other work: what it passes over is not fired
SILENT_SECONDS = 15.0  # of a schedule, once everything is healed
SAME = 1e-5  # two moments of one transaction, as floating point holds them


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
    # Only what a transaction leaves behind counts.
    changes = sorted(history.changes, key=lambda change: (change.at, change.xid, change.seq))
    for (at, _), transaction in groupby(changes, key=lambda change: (change.at, change.xid)):
        touched = set()
        for change in transaction:
            if change.dedupe_key is not None:
                status[change.kind, change.dedupe_key][change.job] = (change.new, change.dedupe_active)
                touched.add((change.kind, change.dedupe_key))
        for kind, key in sorted(touched):
            copies = status[kind, key]
            queued = sorted(job for job, (now, _) in copies.items() if now == "queued")
            active = sorted(job for job, (now, counts) in copies.items() if now in ("queued", "running") and counts)
            for jobs, what in ((queued, "queued"), (active, "alive with dedupe_active")):
                if len(jobs) > 1:
                    yield f"jobs {jobs} of dedupe key {key} were all {what} at {moment(at)}"


def a_pause_holds(history: History) -> Iterator[str]:
    """From a second after a pause until its end, nothing of the kind starts but the one probe that was asked for."""
    by_kind: dict[str, list[KindChange]] = defaultdict(list)
    for change in sorted(history.kinds, key=lambda change: change.seq):
        before = by_kind[change.kind][-1:]
        if before and None not in (before[0].probe_job, change.probe_job) and before[0].probe_job != change.probe_job:
            yield f"kind {change.kind} sent job {change.probe_job} beside its probe {before[0].probe_job}"
        by_kind[change.kind].append(change)
    spans = history.span_of()
    for span in spans.values():
        since = _paused_since(by_kind[span.kind], span.began)
        if since is not None and span.began > since + PAUSE_SECONDS and not _is_probe(by_kind[span.kind], span):
            yield (
                f"job {span.job} claim {span.claim} of kind {span.kind} started at {moment(span.began)}; the kind was "
                f"paused at {moment(since)}"
            )
    pids = history.pid_of()
    for line in history.diary:
        owner = spans.get((line.job, line.claim))
        if line.event != "start" or owner is None or _is_probe(by_kind[owner.kind], owner):
            continue
        since = _paused_since(by_kind[owner.kind], line.at)
        if since is None or line.at <= since + PAUSE_SECONDS + BIRTH_SECONDS:
            continue
        # One that is stopped or cut off cannot see the pause, and a template that stands still was told before it.
        if not history.is_hindered(pids.get(owner.worker or ""), since - BIRTH_SECONDS, line.at):
            yield (
                f"the handler of job {line.job} claim {line.claim} of kind {owner.kind}, which was claimed at "
                f"{moment(owner.began)}, started at {moment(line.at)}; the kind was paused at {moment(since)}"
            )


def _paused_since(changes: list[KindChange], at: float) -> float | None:
    since: float | None = None
    for change in changes:
        if change.at > at + SAME:
            break
        since = (since or change.at) if change.paused else None
    return since


def _is_probe(changes: list[KindChange], span: Span) -> bool:
    """The claim itself marks its probe."""
    return any(abs(change.at - span.began) < SAME and change.probe_job == span.job for change in changes)


def occurrences_fire_once(history: History) -> Iterator[str]:
    """Each point of a schedule's grid is one job at most, in order, and firing goes on once everything is healed."""
    by_schedule: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for change in history.changes:
        if change.old is None and change.schedule is not None and change.occurrence is not None:
            by_schedule[change.schedule].append((change.at, change.occurrence, change.job))
    for schedule, jobs in by_schedule.items():
        for (_, occurrence, job), (at, following, other) in pairwise(sorted(jobs)):
            if following <= occurrence + SAME:
                yield (
                    f"schedule {schedule} fired {moment(following)} as job {other} at {moment(at)}, after "
                    f"{moment(occurrence)} as job {job}"
                )
    for schedule, every in history.grids.items():
        fired = sorted(by_schedule[schedule])
        for at, occurrence, job in fired:
            if abs(occurrence / every - round(occurrence / every)) > SAME or occurrence > at:
                yield f"schedule {schedule} fired {moment(occurrence)} as job {job}: not a point of its grid by then"
        yield from _passed_over(history, schedule, every, fired)
        if history.drained_at < float("inf") and (not fired or fired[-1][0] < history.drained_at - SILENT_SECONDS):
            last = fired[-1][0] if fired else None
            yield f"schedule {schedule} fired last at {moment(last)}; the drain ended at {moment(history.drained_at)}"


def _passed_over(history: History, schedule: str, every: float, fired: list[tuple[float, float, int]]) -> Iterator[str]:
    """Points are passed over only while nothing can tick or, if the schedule says so, while an earlier one is alive."""
    outages = history.outages
    alive = list(_alive(history, schedule)) if schedule in history.skipping else []
    for (_, before, _), (at, after, job) in pairwise(fired):
        points = [before + every * step for step in range(1, round((after - before) / every))]
        missed = [p for p in points if not any(since - LATE_SECONDS <= p <= until for since, until in alive)]
        unexplained = [p for p in missed if not any(since <= p <= until for since, until in outages)]
        if (
            len(unexplained) * every > LATE_SECONDS
            or len(missed) * every > STANDSTILL_SECONDS
            or (missed and history.served(missed[0], missed[-1]) > SERVED_SECONDS)
        ):
            yield (
                f"schedule {schedule} passed over {len(missed)} points from {moment(missed[0])} to "
                f"{moment(missed[-1])}; it fired {moment(after)} as job {job} at {moment(at)}"
            )


def _alive(history: History, schedule: str) -> Iterator[tuple[float, float]]:
    for changes in history.by_job().values():
        if changes[0].schedule == schedule:
            ended: Change | None = changes[-1] if changes[-1].new not in ("queued", "running") else None
            yield changes[0].at, ended.at if ended is not None else float("inf")
