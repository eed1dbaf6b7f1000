"""One job: all that is known of it."""

from dataclasses import dataclass

from jobs import reports
from jobs.reports import JobReport
from supervisor.page.desk import Params, View
from supervisor.page.reading import Session
from supervisor.page.views.questions import LAST_ID, found


@dataclass(frozen=True, slots=True)
class JobQuestion:
    """Which job."""

    id: int


def _ask(params: Params) -> JobQuestion:
    return JobQuestion(min(int(params["id"]), LAST_ID))


async def _read(session: Session, question: JobQuestion) -> JobReport:
    report: JobReport | None = await reports.show_job(session.connection, question.id)
    return found(report, f"Job {question.id}")


JOB = View("/jobs/{id:int}", "job.html", _ask, _read)
