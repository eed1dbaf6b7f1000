"""Kinds: which are paused, and how near the others are to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from jobs import reports
from jobs.activity import ActivityPoint, activity
from jobs.reports import MAX_BY_HAND_SHOWN, AuditFilter, AuditRow, KindRow
from supervisor.page.access import Refused
from supervisor.page.charts import merged
from supervisor.page.reading import Session
from supervisor.page.view import Params, View
from supervisor.page.views.questions import one_of, word

PASTS = ("3", "24", "168")  # hours
DEFAULT_PAST = "24"


@dataclass(frozen=True, slots=True)
class KindQuestion:
    """Which kind, and how far back."""

    name: str
    hours: int


@dataclass(frozen=True, slots=True)
class KindShown:
    """One kind, how its attempts went, and what was done to it by hand.

    `kind` is None where no worker has declared it and nobody has paused it.
    """

    name: str
    kind: KindRow | None
    past: Sequence[ActivityPoint]
    by_hand: Sequence[AuditRow]


def _ask_all(_: Params) -> None:
    return None


async def _read_all(session: Session, _: None) -> Sequence[KindRow]:
    rows: list[KindRow] = await reports.list_kinds(session.connection)
    return rows


def _ask(params: Params) -> KindQuestion:
    name = word(params, "name")
    if name is None:
        raise Refused(404, "Which kind? The address names none.")
    return KindQuestion(name, int(one_of(params, "hours", PASTS) or DEFAULT_PAST))


async def _read(session: Session, question: KindQuestion) -> KindShown:
    kind: KindRow | None = await reports.show_kind(session.connection, question.name)
    by_hand: list[AuditRow] = await reports.list_audit(
        session.connection, AuditFilter(target=question.name), limit=MAX_BY_HAND_SHOWN
    )
    if kind is None:
        return KindShown(question.name, None, [], by_hand)
    past: list[ActivityPoint] = await activity(session.connection, kind=kind.kind, span=timedelta(hours=question.hours))
    return KindShown(kind.kind, kind, merged(past), by_hand)


KINDS = View("/kinds", "kinds.html", _ask_all, _read_all)
KIND = View("/kind", "kind.html", _ask, _read)
