"""Retry or cancel all jobs that pass a filter: first how many there are, then a reason, then batch after batch."""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jobs.bulk import Done, cancel_matching, retry_matching
from jobs.control import MAX_REASON_LENGTH, ControlError
from jobs.finding import JobCount, count_matching
from jobs.unavailable import DatabaseUnavailable, Locked
from supervisor.page.access import Refused
from supervisor.page.desk import Desk, actor_of, params_of
from supervisor.page.forms import field
from supervisor.page.views.jobs import JobsQuestion, ask_for_jobs
from supervisor.page.views.questions import number

MAX_BATCHES = 40  # of one request: some seconds' work; for more, its answer offers to go on
LOCKED = "It ended early: somebody holds a lock that is needed. What is told here stays done."
AWAY = (
    "It ended early: the database does not answer any more. What is told here stays done, and perhaps one batch more."
)
COUNT_MS = 60  # the whole page is there in a tenth of a second; what is not counted by then is told as "at least"

log = logging.getLogger("oomph.page")


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAction:
    """What is done to many jobs. `statuses` are those to which it applies; one of them has to be in the filter."""

    path: str
    verb: str
    past: str
    explanation: str
    statuses: tuple[str, ...]
    run: Callable[..., Any]
    grave: bool = False


BULK_ACTIONS = (
    BulkAction(
        path="/jobs/retry",
        verb="Retry",
        past="queued again",
        explanation="Each gets all its attempts anew and is due at once. What happened so far stays recorded.",
        statuses=("dead", "cancelled"),
        run=retry_matching,
    ),
    BulkAction(
        path="/jobs/cancel",
        verb="Cancel",
        past="cancelled, or their workers told to end them",
        explanation="Queued jobs end at once; the workers of running ones are told to end them within seconds.",
        statuses=("queued", "running"),
        run=cancel_matching,
        grave=True,
    ),
)


async def ask_why_all(desk: Desk, request: Request, action: BulkAction) -> Response:
    """The page that says how many there are and asks for a reason. Raises `Refused`."""
    return await _confirmation(desk, request, action)


async def do_all(desk: Desk, request: Request, action: BulkAction) -> Response:
    """Act on all that pass, newest first, each batch in a transaction of its own. Raises `Refused`."""
    question, reason, actor = _question(request, action), field(request, "reason").strip(), actor_of(request)
    assert actor is not None
    if not reason:
        return await _confirmation(desk, request, action, problem="A reason is needed: it goes into the audit.")
    changed, refused, stopped = 0, Counter[str](), ""
    before = number({"before": field(request, "before")}, "before")
    for _ in range(MAX_BATCHES):
        try:
            async with desk.database.act() as session:
                done: Done = await action.run(
                    session.connection, question.wanted, actor=actor.name, reason=reason, before=before
                )
        except ControlError as error:
            raise Refused(409, f"Nothing was done: {error}.") from error
        except DatabaseUnavailable as error:
            if not changed:
                raise
            log.warning("a bulk %s ended early: %s", action.verb.lower(), error)
            stopped = LOCKED if isinstance(error, Locked) else AWAY
            break
        changed, before = changed + done.changed, done.next_before
        refused.update(done.refused)
        if before is None:
            break
    desk.looks.forget()
    return desk.respond(
        request,
        "bulk_done.html",
        status=503 if stopped else 200,
        stopped=stopped,
        action=action,
        question=question,
        changed=changed,
        refused=refused,
        before=before,
        reason=reason,
    )


def _question(request: Request, action: BulkAction) -> JobsQuestion:
    question = ask_for_jobs(params_of(request))
    if question.wanted.status not in action.statuses:
        raise Refused(400, f"Choose jobs of one status first: {' or '.join(action.statuses)}.")
    return question


async def _confirmation(desk: Desk, request: Request, action: BulkAction, *, problem: str = "") -> Response:
    question = _question(request, action)
    async with desk.database.look() as session:
        count: JobCount = await count_matching(session.connection, question.wanted, milliseconds=COUNT_MS)
    return desk.respond(
        request,
        "bulk.html",
        status=400 if problem else 200,
        action=action,
        question=question,
        count=count,
        problem=problem,
        longest_reason=MAX_REASON_LENGTH,
    )
