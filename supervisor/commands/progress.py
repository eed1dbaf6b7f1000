"""A bar on stderr for what takes long; on a terminal only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHOWN_FROM = 20  # steps: fewer are over before anybody has read the bar


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Tell what this yields how many steps were made; `total` is None where nobody knows how many there are."""
    if not sys.stderr.isatty() or (total is not None and total < SHOWN_FROM):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps: bar.advance(task, steps)
