"""`oomph top`: what goes on, looked at once a second."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from supervisor.commands.database import target_of
from supervisor.commands.options import AsJson, DatabaseUrl, EmbeddedFolder
from supervisor.commands.output import print_json, print_table
from supervisor.errors import explain
from supervisor.target import Target, errors_explained, open_connection

if TYPE_CHECKING:
    import psycopg
    from rich.console import ConsoleDimensions

    from jobs.live import Scene
    from supervisor.commands.top_view import Moment

LOOK_SECONDS = 1.0
SHARE = 20  # times what a look took, until the next: a server that is busy is asked less often
USUAL_SIZE = (80, 24)  # of a terminal that does not know its own
DRAW_SECONDS = 0.25  # how soon a change of the window's size shows


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one look and end, as without a terminal.")] = False,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Watch pools, kinds and workers, once a second.

    Rates are of the last ten seconds. Counts stop at 10,000 of a kind. q ends, s sorts the kinds, arrows scroll them.
    """
    with target_of(database, embedded) as target:
        if as_json or once or not sys.stdout.isatty() or os.environ.get("TERM", "") in ("", "dumb"):
            with open_connection(target) as connection:
                _print_once(_look(connection), as_json=as_json)
        else:
            _watch(target)


def _look(connection: "psycopg.Connection[tuple[object, ...]]") -> "Scene":
    from jobs.live import look

    found: Scene = look(connection)
    connection.rollback()  # it has written nothing, and must not keep the server from cleaning up
    return found


def _print_once(scene: "Scene", *, as_json: bool) -> None:
    from supervisor.commands.top_view import KIND_COLUMNS, ORDERS, POOL_COLUMNS, pools, unserved, worker_columns

    if as_json:
        print_json(
            {
                "pools": pools(scene),
                "kinds": scene.kinds,
                "kinds_left_out": scene.left_out,
                "workers": scene.workers,
            }
        )
        return
    print_table(POOL_COLUMNS, pools(scene), empty="no pools: no worker has declared a kind")
    if nobody := unserved(scene):
        typer.echo(nobody, err=True)
    typer.echo()
    print_table(KIND_COLUMNS, sorted(scene.kinds, key=ORDERS["waiting"]), empty="no kinds")
    typer.echo()
    print_table(worker_columns(datetime.now(UTC)), scene.workers, empty="no workers: `oomph worker` starts one")


class Watcher:
    """Looks from a thread of its own, so that keys and the window are answered while the database is not."""

    def __init__(self, target: Target) -> None:
        from supervisor.commands.top_view import RATE_SECONDS

        self._target = target
        self._rate_seconds = RATE_SECONDS
        self.moments: list[Moment] = []  # the looks that rates are made of, oldest first; replaced, never changed
        self._over = threading.Event()
        self.trouble = ""
        self.refusal: Exception | None = None  # of the very first look: there is nothing to watch
        threading.Thread(target=self._run, name="oomph top", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            try:
                with errors_explained(self._target), open_connection(self._target) as connection:
                    while not self._over.wait(pause):
                        pause = self._look(connection)
            except Exception as error:  # noqa: BLE001  (shown to whoever watches; the next look may succeed)
                if not self.moments:
                    self.refusal = error
                    return
                self.trouble = explain(error) or f"{type(error).__name__}: {error}"
                pause = LOOK_SECONDS

    def _look(self, connection: "psycopg.Connection[tuple[object, ...]]") -> float:
        from supervisor.commands.top_view import Moment

        began = time.monotonic()
        scene = _look(connection)
        now = time.monotonic()
        kept = [moment for moment in self.moments if moment.at >= now - self._rate_seconds]
        self.moments = [*kept, Moment(now, scene)]
        self.trouble = ""
        return max(LOOK_SECONDS - (now - began), SHARE * (now - began) - (now - began))


@contextmanager
def _watching(target: Target) -> Iterator[Watcher]:
    watcher = Watcher(target)
    try:
        yield watcher
    finally:
        watcher.stop()


def _size_of_window() -> "ConsoleDimensions":
    """As the terminal has it now; COLUMNS and LINES, where a shell has exported them, are of an earlier moment."""
    from rich.console import ConsoleDimensions

    size = os.get_terminal_size(sys.stdout.fileno())
    return ConsoleDimensions(size.columns or USUAL_SIZE[0], size.lines or USUAL_SIZE[1])


def _leave(number: int, _frame: object) -> None:
    """By an exception, so that the terminal gets its screen and its settings back."""
    raise SystemExit(128 + number)


def _watch(target: Target) -> None:
    from rich.console import Console
    from rich.live import Live

    from supervisor.commands.keyboard import pressed_keys
    from supervisor.commands.top_view import ORDERS, Screen

    signal.signal(signal.SIGTERM, _leave)
    place, orders, order, scroll = target.place, list(ORDERS), 0, 0
    console = Console(highlight=False)
    with (
        _watching(target) as watcher,
        pressed_keys() as key,
        Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        while watcher.refusal is None:
            moments = watcher.moments
            kinds = len(moments[-1].scene.kinds) if moments else 0
            scroll = max(0, min(scroll, kinds - 1))
            console.size = _size_of_window()
            screen = Screen(place, moments, datetime.now(UTC), watcher.trouble, orders[order], scroll)
            live.update(screen.draw(*console.size), refresh=True)
            page = max(1, console.height // 2)
            match key(DRAW_SECONDS):
                case "q" | "Q":
                    return
                case "s":
                    order, scroll = (order + 1) % len(orders), 0
                case "up":
                    scroll -= 1
                case "down":
                    scroll += 1
                case "page up":
                    scroll -= page
                case "page down" | " ":
                    scroll += page
                case _:
                    pass
    raise watcher.refusal
