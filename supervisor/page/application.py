"""The page as an ASGI app: every address it has, and who may ask for it."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from jobs.unavailable import DatabaseUnavailable, Locked
from supervisor.installation import check_name
from supervisor.page.access import Access, Authenticate, ByApp, Refused, Role
from supervisor.page.actions import ACTIONS, Action, ask_why, do, done_message, mark_read
from supervisor.page.assets import ASSET_PATH, send_asset
from supervisor.page.bulk import BULK_ACTIONS, BulkAction, ask_why_all, do_all
from supervisor.page.desk import Desk, actor_of, base_of, page_context, params_of, view_context
from supervisor.page.files import FILE_PATH, send_file
from supervisor.page.forms import check_form_token, check_origin, field, read_form, sends_token_itself
from supervisor.page.headers import SecurityHeaders
from supervisor.page.live import Live, LiveStream, Watch
from supervisor.page.looks import Look
from supervisor.page.reading import PageDatabase
from supervisor.page.sent import ONCE_FIELD
from supervisor.page.signing_in import ask_for_token, sign_in, sign_out
from supervisor.page.tokens import Tokens
from supervisor.page.view import View
from supervisor.page.views import VIEWS

log = logging.getLogger("oomph.page")

AGAIN_SECONDS = 5  # until a browser asks again for a page that the database did not give

Handler = Callable[[Request], Awaitable[Response]]


class JobsPage:
    """The Background jobs page of one database, as an app to serve or to mount in a FastAPI or Starlette app.

    `authenticate` says who asks: a function or coroutine function that takes the request and returns an `Actor`, or
    None for nobody; or `Tokens`. `name`, such as `production`, stands in titles and the header, and in the names of
    cookies. It opens no connection before somebody looks. Who mounts it may `close` it at the end. Raises `ValueError`
    for a name that is not short and plain.
    """

    def __init__(self, database_url: str, *, authenticate: Authenticate | Access, name: str = "") -> None:
        check_name("name", name)
        access = authenticate if hasattr(authenticate, "actor_of") else ByApp(authenticate)
        self._desk = Desk(PageDatabase(database_url), access)
        self._live = Live()
        app = Starlette(routes=self._routes(), lifespan=self._lifespan)
        app.state.page_name = name
        self._app = SecurityHeaders(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def close(self) -> None:
        """End what is live, and the connections."""
        await self._live.close()
        await self._desk.database.close()

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.close()

    def _routes(self) -> list[Route]:
        routes = [Route(ASSET_PATH, send_asset)]
        routes.append(Route(FILE_PATH, self._for_viewers(self._sends_file)))
        for view in VIEWS:
            routes.append(Route(view.live_path, self._for_viewers(self._streams(view))))
            routes.append(Route(view.path, self._for_viewers(self._shows(view))))
        routes.extend(
            Route(action.path, self._for_owners(self._acts(action)), methods=["GET", "POST"]) for action in ACTIONS
        )
        routes.extend(
            Route(bulk.path, self._for_owners(self._acts_on_all(bulk)), methods=["GET", "POST"])
            for bulk in BULK_ACTIONS
        )
        routes.append(Route("/notices/read", self._for_owners(self._marks_read), methods=["POST"]))
        if isinstance(self._desk.access, Tokens):
            routes.append(Route("/sign-in", self._for_anybody(self._signs_in), methods=["GET", "POST"]))
            routes.append(Route("/sign-out", self._for_anybody(self._signs_out), methods=["POST"]))
        return [*routes, Route("/{path:path}", self._for_viewers(_finds_nothing))]

    def _shows(self, view: View[Any]) -> Handler:
        async def show(request: Request) -> Response:
            return await self._desk.show(request, view, done=done_message(request))

        return show

    def _streams(self, view: View[Any]) -> Handler:
        async def stream(request: Request) -> Response:
            if request.method == "HEAD":
                return Response(media_type=LiveStream.media_type)
            if self._live.is_full:
                raise Refused(503, "Too many look at live views already; this one is not live.")
            question, frame = view.ask(params_of(request)), page_context(request)
            actor = actor_of(request)

            def show(look: Look) -> str:
                return self._desk.templates.live_part(view.template, view_context(view, question, look) | frame)

            async def read() -> Look:
                return await self._desk.looks.look(view, question)

            who = (actor is not None and actor.acts, base_of(request))
            return LiveStream(self._live, Watch((view.path, question), who, read, show))

        return stream

    def _acts(self, action: Action) -> Handler:
        async def act(request: Request) -> Response:
            return await (do if request.method == "POST" else ask_why)(self._desk, request, action)

        return act

    def _acts_on_all(self, action: BulkAction) -> Handler:
        async def act(request: Request) -> Response:
            return await (do_all if request.method == "POST" else ask_why_all)(self._desk, request, action)

        return act

    async def _sends_file(self, request: Request) -> Response:
        return await send_file(self._desk, request)

    async def _marks_read(self, request: Request) -> Response:
        return await mark_read(self._desk, request)

    async def _signs_in(self, request: Request) -> Response:
        if request.method == "POST":
            return await sign_in(self._desk, request)
        return ask_for_token(self._desk, request, status=200, back="/")

    async def _signs_out(self, request: Request) -> Response:
        return sign_out(request)

    def _for_viewers(self, handler: Handler) -> Handler:
        return self._guarded(handler, needs=Role.VIEWER)

    def _for_owners(self, handler: Handler) -> Handler:
        return self._guarded(handler, needs=Role.OWNER)

    def _for_anybody(self, handler: Handler) -> Handler:
        return self._guarded(handler, needs=None)

    def _guarded(self, handler: Handler, *, needs: Role | None) -> Handler:
        """The one way to every handler: who asks is known and may, and a form is one of ours."""

        async def guarded(request: Request) -> Response:
            try:
                if needs is not None:
                    request.state.actor = actor = await self._desk.access.actor_of(request)
                    if actor is None:
                        return self._nobody(request)
                    if needs is Role.OWNER and not actor.acts:
                        raise Refused(403, f"{actor.name} may look, but not act: that takes the role {Role.OWNER}.")
                if request.method == "POST":
                    check_origin(request)
                    request.state.fields = fields = await read_form(request)
                    if needs is not None and not sends_token_itself(request, self._desk.access):
                        check_form_token(request, fields)
                    return await self._once(handler, request)
                return await handler(request)
            except Refused as refusal:
                return self._error(request, refusal.status, str(refusal))
            except Locked:
                return self._error(
                    request, 503, "Somebody holds a lock that is needed. Nothing was changed; try again."
                )
            except DatabaseUnavailable as error:
                log.warning("the database does not answer: %s", error)
                again = "This page tries again by itself." if request.method == "GET" else "Look before you try again."
                return self._error(request, 503, f"The database does not answer. {again}")

        return guarded

    async def _once(self, handler: Handler, request: Request) -> Response:
        """Act on a form, unless it was sent before. Raises what the handler raises, and `Refused`."""
        word = field(request, ONCE_FIELD)
        if not self._desk.sent.take(word):
            raise Refused(409, "This form was sent already, and is done only once. Look at what came of it.")
        try:
            return await handler(request)
        except (Refused, Locked):
            self._desk.sent.give_back(word)
            raise

    def _nobody(self, request: Request) -> Response:
        if isinstance(self._desk.access, Tokens):
            return ask_for_token(self._desk, request)
        return self._error(request, 401, "Nobody is signed in. Sign in to the app that this page belongs to.")

    def _error(self, request: Request, status: int, message: str) -> Response:
        again = AGAIN_SECONDS if status == 503 and request.method == "GET" else None
        return self._desk.respond(request, "error.html", status=status, problem=status, message=message, again=again)


async def _finds_nothing(_: Request) -> Response:
    raise Refused(404, "There is no such page.")
