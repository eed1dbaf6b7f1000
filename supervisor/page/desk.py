"""What every part of the page works with, and how a view becomes an answer."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from supervisor.page.access import Access, Actor
from supervisor.page.cookies import page_name
from supervisor.page.forms import FORM_FIELD, form_token, keep_form_secret, prepare_form_secret
from supervisor.page.looks import Look, Looks
from supervisor.page.reading import PageDatabase
from supervisor.page.rendering import Templates
from supervisor.page.sent import ONCE_FIELD, Sent, new_word
from supervisor.page.view import Params, View


@dataclass(frozen=True, slots=True)
class Desk:
    """The services of one page."""

    database: PageDatabase
    access: Access
    templates: Templates = field(default_factory=Templates)
    sent: Sent = field(default_factory=Sent)
    looks: Looks = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "looks", Looks(self.database))

    def respond(self, request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
        """A whole page. What the frame of every page needs is added."""
        prepare_form_secret(request)
        frame = {
            **page_context(request),
            "form_field": FORM_FIELD,
            "form_token": form_token(request),
            "once_field": ONCE_FIELD,
            "once": new_word(),
            "signs_in": hasattr(self.access, "new_session"),
        }
        response = HTMLResponse(self.templates.page(template, {**frame, **context}), status)
        keep_form_secret(request, response)
        return response

    async def show(self, request: Request, view: View[Any], *, template: str = "", **context: Any) -> Response:
        """A view, read now or a moment ago. Raises `Refused`, `DatabaseUnavailable`."""
        question = view.ask(params_of(request))
        look = await self.looks.look(view, question)
        return self.respond(request, template or view.template, **view_context(view, question, look), **context)


def view_context(view: View[Any], question: Hashable, look: Look) -> dict[str, Any]:
    """What a view's template is given."""
    return {"view": view, "question": question, "shown": look.shown, "now": look.at}


def page_context(request: Request) -> dict[str, Any]:
    """What depends on who asks and by which address, and not on what is shown."""
    return {
        "base": base_of(request),
        "installation": page_name(request),
        "actor": actor_of(request),
        "path": request.url.path,
        "query": request.url.query,
    }


def base_of(request: Request) -> str:
    """The path below which the page is reached; empty for the root of a host."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def actor_of(request: Request) -> Actor | None:
    """Who asks, once that is known."""
    found: Actor | None = getattr(request.state, "actor", None)
    return found


def params_of(request: Request) -> Params:
    """The path's and the query's parameters; of one that is given twice, the last."""
    return {**request.query_params, **{name: str(value) for name, value in request.path_params.items()}}
