"""One job: all that is known of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs import reports
from jobs.finding import JobRow
from jobs.reports import AttemptRow, JobReport, KindRow
from jobs.standing import Standing, standing
from supervisor.page.desk import Params, View
from supervisor.page.payloads import payload_text, result_text
from supervisor.page.reading import Session
from supervisor.page.views.questions import LAST_ID, found


@dataclass(frozen=True, slots=True)
class JobQuestion:
    """Which job."""

    id: int


@dataclass(frozen=True, slots=True)
class JobShown:
    """A job with its attempts, newest first; `payload` and `result` as people may read them."""

    job: JobRow
    attempts: Sequence[AttemptRow]
    standing: Standing | None
    is_declared: bool
    payload: str
    result: str


def _ask(params: Params) -> JobQuestion:
    return JobQuestion(min(int(params["id"]), LAST_ID))


async def _read(session: Session, question: JobQuestion) -> JobShown:
    report: JobReport = found(await reports.show_job(session.connection, question.id), f"Job {question.id}")
    stands: Standing | None = await standing(session.connection, question.id)
    kind: KindRow | None = await reports.show_kind(session.connection, report.job.kind)
    is_declared = kind is not None and kind.pool is not None
    return JobShown(report.job, report.attempts, stands, is_declared, payload_text(report.job), result_text(report.job))


JOB = View("/jobs/{id:int}", "job.html", _ask, _read)
