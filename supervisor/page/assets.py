"""The style, the script and the icon of the pages: the only files, and none from any other host."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from supervisor.page.rendering import asset, asset_name

ASSET_PATH = "/assets/{name}"
TYPES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


async def send_asset(request: Request) -> Response:
    """One of them, under the name that says what it holds: a browser may keep it for good."""
    for name, media_type in TYPES.items():
        if request.path_params["name"] == asset_name(name):
            return Response(
                asset(name), media_type=media_type, headers={"Cache-Control": "public, max-age=31536000, immutable"}
            )
    return PlainTextResponse("There is no such file.\n", 404)
