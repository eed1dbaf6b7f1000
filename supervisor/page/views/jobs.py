"""Jobs: a filtered list, newest first."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from urllib.parse import urlencode

from jobs import reports
from jobs.reports import JobRow
from jobs.task import Pool
from supervisor.page.desk import Params, View
from supervisor.page.reading import Session
from supervisor.page.views.questions import PAGE_ROWS, number, one_of, word


@dataclass(frozen=True, slots=True)
class JobsQuestion:
    """Which jobs, before which id."""

    status: str | None = None
    kind: str | None = None
    pool: str | None = None
    organization_id: str | None = None
    before: int | None = None

    @property
    def filters(self) -> str:
        """As a query string, from the first page on."""
        return urlencode({name: value for name, value in asdict(replace(self, before=None)).items() if value})


@dataclass(frozen=True, slots=True)
class JobsPage:
    """One page of the list, and the kinds to choose from."""

    jobs: Sequence[JobRow]
    kinds: Sequence[str]
    next_before: int | None


def _ask(params: Params) -> JobsQuestion:
    return JobsQuestion(
        status=one_of(params, "status", reports.STATUSES),
        kind=word(params, "kind"),
        pool=one_of(params, "pool", list(Pool)),
        organization_id=word(params, "organization_id"),
        before=number(params, "before"),
    )


async def _read(session: Session, question: JobsQuestion) -> JobsPage:
    jobs: list[JobRow] = await reports.list_jobs(session.connection, **asdict(question), limit=PAGE_ROWS)
    kinds: list[reports.KindRow] = await reports.list_kinds(session.connection)
    more = jobs[-1].id if len(jobs) == PAGE_ROWS else None
    return JobsPage(jobs, sorted(kind.kind for kind in kinds), more)


JOBS = View("/jobs", "jobs.html", _ask, _read)
