"""What an owner may do to one thing. Each asks for a reason on a page of its own, and is audited."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from jobs import control, notices
from jobs.control import MAX_REASON_LENGTH, ControlError
from supervisor.page.access import Refused
from supervisor.page.desk import Desk, actor_of, base_of, params_of
from supervisor.page.forms import field
from supervisor.page.view import Params

ID_DIGITS = 18  # of any number that fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One of them. `title` and `back`, a path of this page, are filled from the parameters of the address.

    `run` is given a connection with an open transaction, those parameters, who acts and why.
    """

    name: str
    path: str
    title: str
    explanation: str
    button: str
    done: str
    back: Callable[[Params], str]
    run: Callable[[Any, Params, str, str], Awaitable[Any]]
    after: Callable[[Any], str] | None = None  # where to go then, by what `run` returned; else back
    grave: bool = False  # what it ends cannot be taken back


def _job(params: Params) -> str:
    return f"/jobs/{params['id']}"


def _kind(params: Params) -> str:
    return "/kind?" + urlencode({"name": params.get("name", "")})


ACTIONS = (
    Action(
        name="retry",
        path="/jobs/{id:row_id}/retry",
        title="Retry job {id}",
        explanation="The job gets all its attempts anew and is due at once. What happened so far stays recorded.",
        button="Retry the job",
        done="The job is queued again.",
        back=_job,
        run=lambda db, params, who, why: control.retry(db, int(params["id"]), actor=who, reason=why),
    ),
    Action(
        name="cancel",
        path="/jobs/{id:row_id}/cancel",
        title="Cancel job {id}",
        explanation="A queued job ends at once. Where it is running, its worker is told to end it within seconds.",
        button="Cancel the job",
        done="The job is cancelled, or its worker was told to end it.",
        back=_job,
        run=lambda db, params, who, why: control.cancel(db, int(params["id"]), actor=who, reason=why),
        grave=True,
    ),
    Action(
        name="pause",
        path="/kind/pause",
        title="Pause {name}",
        explanation="No job of this kind starts any more, on any host. Those that are running finish.",
        button="Pause the kind",
        done="The kind is paused.",
        back=_kind,
        run=lambda db, params, who, why: control.pause(db, params.get("name", ""), actor=who, reason=why),
    ),
    Action(
        name="resume",
        path="/kind/resume",
        title="Resume {name}",
        explanation="Its jobs start again, and kills are counted from zero.",
        button="Resume the kind",
        done="The kind runs again.",
        back=_kind,
        run=lambda db, params, who, why: control.resume(db, params.get("name", ""), actor=who, reason=why),
    ),
    Action(
        name="probe",
        path="/kind/probe",
        title="Resume {name} with a probe",
        explanation="Exactly one job goes first. If it succeeds the kind runs again; if it dies the kind stays paused.",
        button="Let one job through",
        done="One job goes first; what comes of it decides.",
        back=_kind,
        run=lambda db, params, who, why: control.resume(db, params.get("name", ""), actor=who, reason=why, probe=True),
    ),
    Action(
        name="run",
        path="/schedule/run",
        title="Run {name} now",
        explanation="One job is made for this very moment. The schedule itself goes on as if nothing had happened.",
        button="Run it now",
        done="This is the job that was made.",
        back=lambda _: "/schedules",
        run=lambda db, params, who, why: control.run_schedule_now(db, params.get("name", ""), actor=who, reason=why),
        after=lambda job_id: f"/jobs/{job_id}",
    ),
)

DONE = {action.name: action.done for action in ACTIONS} | {"read": "Marked as read."}


async def ask_why(desk: Desk, request: Request, action: Action) -> Response:
    """The page that explains the action and asks for a reason."""
    return _confirmation(desk, request, action)


async def do(desk: Desk, request: Request, action: Action) -> Response:
    """Act, and go back to the thing itself. What does not apply is said on the same page."""
    reason, actor, params = field(request, "reason").strip(), actor_of(request), params_of(request)
    assert actor is not None
    if not reason:
        return _confirmation(desk, request, action, status=400, problem="A reason is needed: it goes into the audit.")
    try:
        async with desk.database.act() as session:
            result = await action.run(session.connection, params, actor.name, reason)
    except ControlError as error:
        return _confirmation(desk, request, action, status=409, problem=f"Nothing was done: {error}.", reason=reason)
    desk.looks.forget()
    return go_back(request, action.after(result) if action.after else action.back(params), action.name)


async def mark_read(desk: Desk, request: Request) -> Response:
    """Mark one notice as read, or all of them."""
    given = field(request, "id")
    if field(request, "which") != "all" and not (given.isascii() and given.isdigit() and len(given) <= ID_DIGITS):
        raise Refused(400, "Which notice?")
    ids = None if field(request, "which") == "all" else [int(given)]
    async with desk.database.act() as session:
        try:
            await notices.mark_read(session.connection, ids)
        except ControlError as error:
            raise Refused(404, f"{error}.") from error
    desk.looks.forget()
    return go_back(request, "/notices", "read")


def go_back(request: Request, path: str, done: str) -> Response:
    """To a path of this page, which then says what was done."""
    mark = "&" if "?" in path else "?"
    return RedirectResponse(f"{base_of(request)}{path}{mark}{urlencode({'done': done})}", 303)


def done_message(request: Request) -> str:
    """What was done, in words of ours: an address may say anything."""
    return DONE.get(request.query_params.get("done", ""), "")


def _confirmation(
    desk: Desk, request: Request, action: Action, *, status: int = 200, problem: str = "", reason: str = ""
) -> Response:
    params = params_of(request)
    return desk.respond(
        request,
        "confirm.html",
        status=status,
        action=action,
        title=action.title.format_map({"name": "", **params}),
        back=action.back(params),
        problem=problem,
        reason=reason,
        longest_reason=MAX_REASON_LENGTH,
    )
