"""Jobs: a filtered list, newest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from jobs import finding, reports
from jobs.finding import JobFilter, JobPage
from jobs.task import Pool
from supervisor.page.quantities import typed
from supervisor.page.reading import Session
from supervisor.page.view import Params, View
from supervisor.page.views.questions import PAGE_ROWS, identity, moment, number, one_of, word

MAX_KINDS = 500  # to choose from; any other can be typed
ID_DIGITS = 18  # of any number that fits
MOMENTS = ("created_from", "created_until", "finished_from", "finished_until")


@dataclass(frozen=True, slots=True)
class JobsQuestion:
    """Which jobs, before which id. `search` is what was typed: an id or a key."""

    wanted: JobFilter
    search: str
    before: int | None

    @property
    def filters(self) -> str:
        """The filter as a query string."""
        given = {name: value for name, value in self.wanted.given().items() if name not in ("id", "key")}
        moments = {name: typed(getattr(self.wanted, name)) for name in given if name in MOMENTS}
        return urlencode({**given, **moments, **({"search": self.search} if self.search else {})})

    @property
    def has_more_filters(self) -> bool:
        """One of those that are seldom used is set."""
        return any(getattr(self.wanted, name) is not None for name in ("worker_id", "schedule", *MOMENTS))


@dataclass(frozen=True, slots=True)
class JobsShown:
    """One page of the list, and the kinds to choose from."""

    page: JobPage
    kinds: Sequence[str]

    @property
    def stopped_early(self) -> bool:
        """It took too long to look further, and the page is not full."""
        return self.page.next_before is not None and len(self.page.jobs) < PAGE_ROWS


def ask_for_jobs(params: Params) -> JobsQuestion:
    """Raises `Refused`."""
    search = word(params, "search")
    is_id = search is not None and search.isascii() and search.isdigit() and len(search) <= ID_DIGITS
    wanted = JobFilter(
        id=int(search) if search is not None and is_id else None,
        key=None if is_id else search,
        status=one_of(params, "status", reports.STATUSES),
        kind=word(params, "kind"),
        pool=one_of(params, "pool", list(Pool)),
        organization_id=word(params, "organization_id"),
        worker_id=identity(params, "worker_id"),
        schedule=word(params, "schedule"),
        **{name: moment(params, name) for name in MOMENTS},
    )
    return JobsQuestion(wanted, search or "", number(params, "before"))


async def _read(session: Session, question: JobsQuestion) -> JobsShown:
    page: JobPage = await finding.find_jobs(
        session.connection, question.wanted, before=question.before, limit=PAGE_ROWS
    )
    kinds: list[reports.KindRow] = await reports.list_kinds(session.connection, limit=MAX_KINDS)
    return JobsShown(page, sorted(kind.kind for kind in kinds))


JOBS = View("/jobs", "jobs.html", ask_for_jobs, _read)
