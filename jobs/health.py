"""The health of kinds in the database: their streaks, and the pause that a streak brings about.

What a streak means is decided in `jobs.streak`; here it is read and written under the lock of the kind's row, so that
streaks grow in commit order over all hosts and a pause commits together with the kill that caused it.
"""

import logging
from dataclasses import dataclass
from uuid import UUID

from jobs.database import Session, json_or_none
from jobs.failpoints import Failpoint, failpoint
from jobs.outcome import Verdict
from jobs.streak import KindHealth, streak

PAUSED_BY = "oomph"  # the actor of a pause that no person asked for

log = logging.getLogger("oomph.kinds")


@dataclass(frozen=True, slots=True)
class Paused:
    """This job's kill paused its kind."""

    kind: str
    job_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class ProbeDied:
    """The one job that was let through shows that the kind is not mended: it stays paused."""

    kind: str
    job_id: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Reopened:
    """The one job that was let through left its process alive: the kind runs again."""

    kind: str
    job_id: int


HealthNews = Paused | ProbeDied | Reopened


def tell(news: HealthNews) -> None:
    """Log what has happened to a kind, after its commit, and what a person may do about it."""
    match news:
        case Paused(kind, job_id, reason):
            log.critical(
                "job %s paused its kind %s, of which nothing starts any more: %s. Once that is mended, "
                "`oomph kinds resume %s --actor NAME` lets it run again; with --probe, one job goes first",
                job_id,
                kind,
                _on_one_line(reason),
                kind,
            )
        case ProbeDied(kind, job_id, verdict):
            log.error(
                "kind %s stays paused: its probe, job %s, ended as %s. `oomph jobs show %s` tells why; "
                "`oomph kinds resume %s --actor NAME --probe` sends another",
                kind,
                job_id,
                verdict,
                job_id,
                kind,
            )
        case Reopened(kind, job_id):
            log.warning("kind %s runs again: its probe, job %s, left its process alive", kind, job_id)


async def judge(
    session: Session,
    kind: str,
    verdict: Verdict,
    pause_after: int,
    *,
    job_id: int,
    generation: int,
    counts: bool = True,
) -> HealthNews | None:
    """Move the kind's streak; pause the kind in this transaction where the streak says so.

    Returns what there is to `tell` once it is committed.
    """
    rows = await session.fetch("lock_kind", kind=kind)
    if not rows and not verdict.is_kill:
        return None  # a kind that nobody declared and that never killed has no health to mend
    before = KindHealth(*rows[0]) if rows else await lock_health(session, kind)
    after = streak(before, verdict, job_id=job_id, generation=generation, counts=counts, pause_after=pause_after)
    if after == before:
        return None
    news: HealthNews | None = None
    if after.paused and not before.paused:
        news = Paused(kind, job_id, await _pause_reason(session, kind, after.kill_streak))
    elif before.paused and not after.paused:
        news = Reopened(kind, job_id)
    elif before.probe and not after.probe:
        news = ProbeDied(kind, job_id, verdict)
    await session.fetch(
        "write_kind",
        kind=kind,
        kill_streak=after.kill_streak,
        paused=after.paused,
        probe=after.probe,
        probe_job_id=after.probe_job_id,
        actor=PAUSED_BY,
        reason=news.reason if isinstance(news, Paused) else None,
        probe_died=f"its probe, job {job_id}, ended as {verdict}" if isinstance(news, ProbeDied) else None,
    )
    failpoint(Failpoint.STREAK_COUNTED)
    match news:
        case Reopened() | None:
            pass
        case Paused(reason=reason):
            subject = f"{kind} is paused: its jobs killed their process {after.kill_streak} times in a row"
            await session.fetch(
                "audit", actor=PAUSED_BY, action="pause", target=kind, reason=reason, detail=json_or_none({})
            )
            event = f"paused-kind:{kind}:{generation}:{job_id}"
            await session.fetch("notice", event=event, severity="critical", subject=subject, body=reason)
        case ProbeDied():
            subject = f"{kind} stays paused: its probe, job {job_id}, ended as {verdict}"
            event = f"dead-probe:{kind}:{generation}:{job_id}"
            await session.fetch("notice", event=event, severity="warning", subject=subject, body=subject)
    if after.paused != before.paused or after.probe_job_id != before.probe_job_id:
        await session.fetch("notify", channel="background_control", payload="kinds")
    return news


def _on_one_line(reason: str) -> str:
    first, *rest = reason.splitlines() or [""]
    return f"{first} {'; '.join(rest)}".strip()


async def _pause_reason(session: Session, kind: str, kills: int) -> str:
    rows = await session.fetch("recent_kills", kind=kind, count=kills)
    told = [
        f"job {job_id} attempt {attempt} on {host}: {verdict}" + (f": {why}" if why else "")
        for job_id, attempt, verdict, host, why in reversed(rows)
    ]
    return f"{kills} kills in a row:\n" + "\n".join(told)


async def lock_health(session: Session, kind: str) -> KindHealth:
    """The kind's health, its row locked until the transaction ends."""
    rows = await session.fetch("lock_kind", kind=kind)
    if not rows:
        await session.fetch("add_kind", kind=kind)
        rows = await session.fetch("lock_kind", kind=kind)
    return KindHealth(*rows[0])


async def counts_as_loss(session: Session, worker_id: UUID | None, kind: str) -> bool:
    """Whether a job of this lost worker is a kill of its kind: one worker is one kill a kind, not one a job.

    To be asked while the kind is locked, because another rescuer may be settling the worker's other jobs.
    """
    if worker_id is None:
        return False  # inserted or changed by hand: nobody died
    rows = await session.fetch("loss_counted", kind=kind, worker_id=worker_id)
    return not rows[0][0]
