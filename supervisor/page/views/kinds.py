"""Kinds: which are paused, and how near the others are to it."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs import reports
from jobs.reports import KindRow
from supervisor.page.access import Refused
from supervisor.page.desk import Params, View
from supervisor.page.reading import Session
from supervisor.page.views.questions import found, word


@dataclass(frozen=True, slots=True)
class KindQuestion:
    """Which kind."""

    name: str


@dataclass(frozen=True, slots=True)
class KindPage:
    """One kind."""

    kind: KindRow


def _ask_all(_: Params) -> None:
    return None


async def _read_all(session: Session, _: None) -> Sequence[KindRow]:
    rows: list[KindRow] = await reports.list_kinds(session.connection)
    return rows


def _ask(params: Params) -> KindQuestion:
    name = word(params, "name")
    if name is None:
        raise Refused(404, "Which kind? The address names none.")
    return KindQuestion(name)


async def _read(session: Session, question: KindQuestion) -> KindPage:
    row: KindRow | None = await reports.show_kind(session.connection, question.name)
    return KindPage(found(row, f"The kind {question.name}"))


KINDS = View("/kinds", "kinds.html", _ask_all, _read_all)
KIND = View("/kind", "kind.html", _ask, _read)
