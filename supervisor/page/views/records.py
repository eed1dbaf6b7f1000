"""Schedules, workers, the audit and notices: lists as they stand in their tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from jobs import reports
from jobs.reports import AuditFilter, AuditRow, NoticeRow, ScheduleRow, WorkerRow
from supervisor.page.reading import Session
from supervisor.page.view import Params, View
from supervisor.page.views.questions import PAGE_ROWS, number, one_of, word


@dataclass(frozen=True, slots=True)
class AuditQuestion:
    """A page of the audit: what passes, before this id."""

    wanted: AuditFilter
    before: int | None

    @property
    def filters(self) -> str:
        """The filter as a query string."""
        return urlencode(self.wanted.given())


@dataclass(frozen=True, slots=True)
class NoticesQuestion:
    """A page of the notices, all or only those that nobody has read."""

    before: int | None
    unread: bool


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A page of the audit."""

    rows: Sequence[AuditRow]
    next_before: int | None


@dataclass(frozen=True, slots=True)
class NoticesPage:
    """A page of the notices."""

    rows: Sequence[NoticeRow]
    next_before: int | None


def _ask_nothing(_: Params) -> None:
    return None


def _ask_audit(params: Params) -> AuditQuestion:
    wanted = AuditFilter(
        job_id=number(params, "job_id"),
        target=word(params, "target"),
        actor=word(params, "actor"),
        action=word(params, "action"),
    )
    return AuditQuestion(wanted, number(params, "before"))


def _ask_notices(params: Params) -> NoticesQuestion:
    return NoticesQuestion(number(params, "before"), one_of(params, "unread", ["yes"]) is not None)


async def _read_schedules(session: Session, _: None) -> Sequence[ScheduleRow]:
    rows: list[ScheduleRow] = await reports.list_schedules(session.connection)
    return rows


async def _read_workers(session: Session, _: None) -> Sequence[WorkerRow]:
    rows: list[WorkerRow] = await reports.list_workers(session.connection)
    return rows


async def _read_audit(session: Session, question: AuditQuestion) -> AuditPage:
    rows: list[AuditRow] = await reports.list_audit(
        session.connection, question.wanted, before=question.before, limit=PAGE_ROWS
    )
    return AuditPage(rows, rows[-1].id if len(rows) == PAGE_ROWS else None)


async def _read_notices(session: Session, question: NoticesQuestion) -> NoticesPage:
    rows: list[NoticeRow] = await reports.list_notices(
        session.connection, unread=question.unread, before=question.before, limit=PAGE_ROWS
    )
    return NoticesPage(rows, rows[-1].id if len(rows) == PAGE_ROWS else None)


SCHEDULES = View("/schedules", "schedules.html", _ask_nothing, _read_schedules)
WORKERS = View("/workers", "workers.html", _ask_nothing, _read_workers)
AUDIT = View("/audit", "audit.html", _ask_audit, _read_audit)
NOTICES = View("/notices", "notices.html", _ask_notices, _read_notices)
