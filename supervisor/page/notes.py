"""What rows say, in a few words: the one thing about a job that its status does not tell, a deed."""

from collections.abc import Mapping
from datetime import datetime

from jobs.reports import AuditRow, JobRow, error_line
from supervisor.page.quantities import span


def note(job: JobRow, now: datetime) -> str:
    """A few words for a list; empty where there is nothing to add."""
    match job.status:
        case "running":
            return _of_running(job)
        case "queued":
            return _of_queued(job, now)
        case "succeeded":
            ran = job.finished_at - job.started_at if job.finished_at and job.started_at else None
            return f"in {span(ran)}" if ran is not None else ""
        case _:
            return _error(job)


def deed(row: AuditRow) -> str:
    """What somebody did, with what the audit keeps of how."""
    given: object = row.detail  # of a row that was written by hand, it may be anything
    detail = given if isinstance(given, Mapping) else {}
    told = f"{row.action} with a probe" if detail.get("probe") else row.action
    wanted = detail.get("filter")
    if isinstance(wanted, Mapping):
        told += " of " + ", ".join(f"{str(name).replace('_', ' ')} {value}" for name, value in wanted.items())
    refused = detail.get("refused")
    if isinstance(refused, Mapping) and refused:
        told += "; not done: " + ", ".join(f"{count} because {why}" for why, count in refused.items())
    return told


def _of_running(job: JobRow) -> str:
    if job.cancel_requested_at:
        return "its worker was told to end it"
    return "" if job.progress is None else f"{job.progress:.0%} {job.progress_note or ''}".strip()


def _of_queued(job: JobRow, now: datetime) -> str:
    if job.kind_paused:
        return "its kind is paused"
    if job.blocked:
        return f"waits for its key {job.concurrency_key}"
    due = f"due in {span(job.run_after - now)}" if job.run_after > now else ""
    return "; ".join(part for part in (due, _error(job)) if part)


def _error(job: JobRow) -> str:
    return "" if job.error is None else error_line(job.error)
