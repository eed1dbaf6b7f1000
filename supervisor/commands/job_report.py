"""How `oomph jobs show` tells the story of one job."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import typer

from supervisor.commands.output import print_facts, print_json, printable, shown, span

if TYPE_CHECKING:
    from jobs.reports import AttemptRow, AuditRow, JobReport, JobRow
    from jobs.standing import Standing

Facts = Iterator[tuple[str, object]]


def print_report(report: "JobReport", standing: "Standing | None", *, as_json: bool) -> None:
    """Print a job with its attempts and what was done to it by hand; `standing` None where it is gone since.

    As JSON: the job's columns, where it runs, what it waits for, and two arrays of objects, `attempts` and `by_hand`.
    """
    from jobs.reports import MAX_BY_HAND_SHOWN

    waits_for = standing.next if standing and report.job.status == "queued" else None
    if as_json:
        job = {field.name: getattr(report.job, field.name) for field in dataclasses.fields(report.job)}
        worker = report.worker
        runs = {
            "host": worker and worker.host,
            "worker_pid": worker and worker.pid,
            "process_title": report.process_title,
        }
        print_json({**job, **runs, "waits_for": waits_for, "attempts": report.attempts, "by_hand": report.by_hand})
        return
    typer.echo(f"Job {report.job.id}: {printable(report.job.kind)}, {report.job.status}")
    print_facts(_about_job(report.job, report.runs, standing if waits_for else None), indent="  ")
    for attempt in report.attempts:
        charged = "charged" if attempt.charged else "not charged"
        kill = ", counts as a kill" if attempt.is_kill else ""
        typer.echo(f"\nAttempt {attempt.attempt}: {attempt.verdict}, {charged}{kill}")
        print_facts(_about_attempt(attempt), indent="  ")
    if not report.attempts:
        typer.echo("\nNo attempt has failed.")
    if report.by_hand:
        typer.echo("\nDone by hand, newest first")
        print_facts(((f"{shown(row.at)} UTC", _deed(row)) for row in report.by_hand), indent="  ")
    if len(report.by_hand) == MAX_BY_HAND_SHOWN:
        typer.echo(f"perhaps more: oomph audit list --job {report.job.id}", err=True)


def _about_job(job: "JobRow", runs: str | None, standing: "Standing | None") -> Facts:
    yield "pool", job.pool
    yield "priority", {0: "interactive", 1: "default", 2: "bulk"}.get(job.priority, job.priority)
    yield "attempts", f"{job.attempt} of {job.max_attempts}, {span(job.timeout)} each"
    yield "organization", job.organization_id
    yield (
        "dedupe key",
        f"{job.dedupe_key}{' (also while running)' if job.dedupe_active else ''}" if job.dedupe_key else None,
    )
    yield (
        "concurrency key",
        f"{job.concurrency_key}{' (waits for it)' if job.blocked else ''}" if job.concurrency_key else None,
    )
    yield "schedule", f"{job.schedule}, occurrence {shown(job.occurrence)} UTC" if job.schedule else None
    yield "created (UTC)", job.created_at
    yield "due (UTC)", job.run_after if job.status == "queued" else None
    yield "waits for", standing and _told_wait(job, standing)
    yield "started (UTC)", job.started_at
    yield "finished (UTC)", job.finished_at
    yield "cancel asked (UTC)", job.cancel_requested_at
    yield "worker", job.worker_id
    yield "runs", runs
    yield "progress", None if job.progress is None else f"{job.progress:.0%} {job.progress_note or ''}"
    yield "payload", job.payload
    yield "result", job.result
    yield from _about_error(job.error)


def _told_wait(job: "JobRow", standing: "Standing") -> str:
    from jobs.standing import Next

    told = {
        Next.RESUME: "; `oomph kinds list` tells why",
        Next.WORKER: f"; start one whose app has a handler for {job.kind}",
        Next.POOL: "; start one, or let one serve it as well (WORKER_POOLS)",
        Next.KEY: "" if standing.holder_id is None else f": job {standing.holder_id}",
    }
    return f"{standing.next}{told.get(standing.next, '')}"


def _about_attempt(attempt: "AttemptRow") -> Facts:
    took = f", {span(attempt.finished_at - attempt.started_at)}" if attempt.started_at else ""
    yield "started (UTC)", attempt.started_at
    yield "finished (UTC)", f"{shown(attempt.finished_at)}{took}"
    yield "host", attempt.host
    yield "pid", attempt.pid
    yield "worker", attempt.worker_id
    yield "claim", attempt.claim
    yield "signal", attempt.signal
    # 0 says something only where nothing else was said: a child that tells how its job failed ends in order.
    yield "exit code", attempt.exit_code if attempt.exit_code or attempt.verdict == "vanished" else None
    yield "memory", _memory(attempt)
    yield "processor", None if attempt.cpu_seconds is None else f"{attempt.cpu_seconds:,.1f} s"
    yield "evidence", _evidence(attempt)
    yield from _about_error(attempt.error)
    yield "output", attempt.output_tail


def done(row: "AuditRow") -> str:
    """What somebody did, in the words of the command that does it."""
    detail: object = row.detail  # of a row that was written by hand, it may be anything
    return f"{row.action} --probe" if isinstance(detail, dict) and detail.get("probe") else row.action


def _deed(row: "AuditRow") -> str:
    return f"{done(row)} by {row.actor}" + (f": {row.reason}" if row.reason else "")


def _evidence(attempt: "AttemptRow") -> object:
    """Each part on a line; of a row that somebody wrote by hand, whatever stands there."""
    evidence: object = attempt.evidence
    if not isinstance(evidence, Mapping):
        return evidence
    said = attempt.error.get("message") if isinstance(attempt.error, Mapping) else None  # often `why` in full
    return "\n".join(f"{name}: {shown(value)}" for name, value in evidence.items() if value != said) or None


def _memory(attempt: "AttemptRow") -> str | None:
    peak = None if attempt.peak_memory_mb is None else f"{attempt.peak_memory_mb:,.0f} MB at its peak"
    limit = None if attempt.memory_limit_mb is None else f"{attempt.memory_limit_mb:,} MB allowed"
    return ", ".join(part for part in (peak, limit) if part) or None


def _about_error(error: object) -> Facts:
    from jobs.reports import error_line, error_stack

    if error is not None:
        yield "error", error_line(error)
        yield "stack", error_stack(error) or None
