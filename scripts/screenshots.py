"""Pictures of the page for the documentation, from made-up data, each small enough to live in the repository."""

import io
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from PIL import Image
from playwright.sync_api import sync_playwright

from jobs.migrate import migrate
from scripts.browsing import launch_chromium, running_page
from scripts.showroom import furnish
from supervisor.embedded import EmbeddedServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = Path(__file__).parent.parent / "docs" / "images"
MAX_BYTES = 80_000
COLOURS = 256  # of a page that has some thirty; the others soften the edges of letters
DESKTOP = {"width": 1280, "height": 860}
PHONE = {"width": 360, "height": 740}
MARGIN = 70  # below the content, for the line at the foot of the page


@dataclass(frozen=True, slots=True)
class Picture:
    """One view. `options` are those of a browser's context."""

    name: str
    path: str
    options: dict[str, Any] = field(default_factory=dict)


def main() -> int:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        # Where a server's own user may come, in whose name root starts it.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        server = EmbeddedServer(folder / "server", durable=False)
        url = server.start()
        stack.callback(server.stop)
        migrate(url)
        with psycopg.connect(url, autocommit=True) as db:
            room = furnish(db)
        pictures = [
            *(Picture(name, f"/{name}") for name in ("jobs", "kinds", "schedules", "workers", "notices", "audit")),
            Picture("overview", "/"),
            Picture("overview-dark", "/", {"color_scheme": "dark"}),
            Picture("overview-phone", "/", {"viewport": PHONE}),
            Picture("job", f"/jobs/{room.dead}"),
            Picture("kind", "/kind?name=extract-tables&hours=3"),
            Picture("retry", "/jobs/retry?status=dead"),
        ]
        with running_page(url, folder / "log") as address, sync_playwright() as playwright:
            browser = launch_chromium(playwright)
            for picture in pictures:
                data = compressed(taken(browser, address, picture))
                (IMAGES / f"page-{picture.name}.png").write_bytes(data)
                print(f"page-{picture.name}.png: {len(data):,} bytes")
                if len(data) > MAX_BYTES:
                    raise SystemExit(f"page-{picture.name}.png is over {MAX_BYTES:,} bytes")
            browser.close()
    return 0


def taken(browser: "Browser", address: str, picture: Picture) -> bytes:
    """What a window of that size shows of the view."""
    options = {"viewport": DESKTOP, "color_scheme": "light", "reduced_motion": "reduce", **picture.options}
    context = browser.new_context(**options)
    try:
        tab = context.new_page()
        tab.goto(address + picture.path)
        if (liveness := tab.locator("#liveness")).count():
            liveness.filter(has_text="Live.").wait_for()
        # No taller than what there is to see.
        end = tab.evaluate("document.querySelector('main').lastElementChild.getBoundingClientRect().bottom")
        size = options["viewport"]
        tab.set_viewport_size({**size, "height": min(size["height"], int(end) + MARGIN)})
        return tab.screenshot()
    finally:
        context.close()


def compressed(data: bytes) -> bytes:
    """The same picture with a palette of its own."""
    out = io.BytesIO()
    Image.open(io.BytesIO(data)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
        out, "PNG", optimize=True
    )
    return out.getvalue()


if __name__ == "__main__":
    sys.exit(main())
