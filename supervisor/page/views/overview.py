"""Everything at one glance: what needs somebody, what waits and runs, how the last hours went, who works."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from jobs import overview, reports
from jobs.activity import ActivityPoint, activity
from jobs.overview import MAX_UNDECLARED, KindOverview, Load, Overview
from jobs.reports import KindRow, NoticeRow, WorkerRow
from supervisor.page.reading import Session
from supervisor.page.view import Params, View

PAST = timedelta(hours=24)
MAX_ALERTS = 20
MAX_WORKERS_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Line:
    """One kind, or all kinds of a pool. `rate` is attempts a minute that ended, `failed` of how many in a hundred."""

    name: str
    load: Load
    oldest: datetime | None
    rate: float
    failed: float | None
    paused: bool = False
    kill_streak: int = 0
    is_declared: bool = True


@dataclass(frozen=True, slots=True)
class PoolLines:
    """A pool, and its kinds by name."""

    whole: Line
    kinds: Sequence[Line]


@dataclass(frozen=True, slots=True)
class OverviewShown:
    """The overview. A count of `count_limit` means: or more. `unserved` are due jobs by pool, where no worker lives."""

    pools: Sequence[PoolLines]
    left_out: int
    has_more_undeclared: bool
    count_limit: int
    live_workers: int
    unserved: dict[str, int]
    paused: Sequence[KindRow]
    unread: Sequence[NoticeRow]
    workers: Sequence[WorkerRow]
    past: Sequence[ActivityPoint]


def _ask(_: Params) -> None:
    return None


async def _read(session: Session, _: None) -> OverviewShown:
    db = session.connection
    found: Overview = await overview.overview(db)
    kinds: list[KindRow] = await reports.list_kinds(db, limit=MAX_ALERTS)
    unread: list[NoticeRow] = await reports.list_notices(db, unread=True, limit=MAX_ALERTS)
    workers: list[WorkerRow] = await reports.list_workers(db, limit=MAX_WORKERS_SHOWN)
    past: list[ActivityPoint] = await activity(db, span=PAST)
    minutes = found.recent_seconds / 60
    by_pool = [
        PoolLines(
            _line(pool or "not declared", load, session.at, minutes),
            [_of_kind(kind, session.at, minutes) for kind in found.kinds if kind.pool == pool],
        )
        for pool, load in found.pools().items()
    ]
    return OverviewShown(
        pools=by_pool,
        left_out=found.left_out,
        has_more_undeclared=sum(not kind.is_declared for kind in found.kinds) >= MAX_UNDECLARED,
        count_limit=found.count_limit,
        live_workers=found.workers,
        unserved=found.unserved(),
        paused=[kind for kind in kinds if kind.paused_at is not None],
        unread=unread,
        workers=workers,
        past=past,
    )


def _of_kind(kind: KindOverview, at: datetime, minutes: float) -> Line:
    line = _line(kind.kind, kind.load, at, minutes)
    return replace(line, paused=kind.paused, kill_streak=kind.kill_streak, is_declared=kind.is_declared)


def _line(name: str, load: Load, at: datetime, minutes: float) -> Line:
    """Without what differs from look to look: two looks at the same thing have to be equal."""
    ended = load.succeeded + load.failed
    oldest = at - timedelta(seconds=load.oldest_age) if load.oldest_age >= 1 else None
    return Line(
        name=name,
        load=replace(load, oldest_age=0.0),
        oldest=oldest and (oldest + timedelta(milliseconds=500)).replace(microsecond=0),
        rate=_two_digits(ended / minutes),
        failed=100 * load.failed / ended if ended else None,
    )


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


OVERVIEW = View("/", "overview.html", _ask, _read)
