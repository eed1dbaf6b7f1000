"""One job: all that is known of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs import reports
from jobs.finding import JobRow
from jobs.reports import AttemptRow, AuditRow, JobReport, KindRow
from jobs.standing import Standing, standing
from supervisor.page.payloads import payload_text, result_text
from supervisor.page.reading import Session
from supervisor.page.view import Params, View
from supervisor.page.views.questions import found

MAX_ATTEMPTS = 50  # on one page, the newest: each may carry 64 KiB of output


@dataclass(frozen=True, slots=True)
class JobQuestion:
    """Which job."""

    id: int


@dataclass(frozen=True, slots=True)
class JobShown:
    """A job with its attempts, newest first; `payload`, `result` and where it `runs` as people read it."""

    job: JobRow
    attempts: Sequence[AttemptRow]
    attempts_known: int
    by_hand: Sequence[AuditRow]
    standing: Standing | None
    is_declared: bool
    runs: str | None
    payload: str
    result: str


def _ask(params: Params) -> JobQuestion:
    return JobQuestion(int(params["id"]))


async def _read(session: Session, question: JobQuestion) -> JobShown:
    report: JobReport = found(await reports.show_job(session.connection, question.id), f"Job {question.id}")
    stands: Standing | None = await standing(session.connection, question.id)
    kind: KindRow | None = await reports.show_kind(session.connection, report.job.kind)
    return JobShown(
        job=report.job,
        attempts=report.attempts[:MAX_ATTEMPTS],
        attempts_known=len(report.attempts),
        by_hand=report.by_hand,
        standing=stands,
        is_declared=kind is not None and kind.pool is not None,
        runs=report.runs,
        payload=payload_text(report.job),
        result=result_text(report.job),
    )


JOB = View("/jobs/{id:row_id}", "job.html", _ask, _read)
