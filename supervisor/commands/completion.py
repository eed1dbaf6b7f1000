"""What a shell is offered to complete; the shell's own part is typer's.

Whoever presses a key must not wait for a database that does not answer, nor read what it says: kinds are looked up for
a moment, and without an answer there are none.
"""

import os
import re
import threading
from collections.abc import Callable, Iterable

import typer

LOOK_SECONDS = 1.5
# Some shells evaluate what they are offered, and anybody who can enqueue names kinds.
_HARMLESS = re.compile(r"[\w.:/@+-]+", re.ASCII)


def choices(*allowed: str) -> Callable[[str], list[str]]:
    """A completion by a fixed list."""

    def complete(incomplete: str) -> list[str]:
        return _beginning(allowed, incomplete)

    return complete


def pools(incomplete: str) -> list[str]:
    """One pool."""
    return _beginning(("agent", "ingest", "system"), incomplete)


def kinds(ctx: typer.Context, incomplete: str) -> list[str]:
    """The kinds that workers have declared, of the database that --database, given before, or the environment names."""
    url = ctx.params.get("database") or os.environ.get("DATABASE_URL", "")
    if not url or ctx.params.get("embedded"):  # whose server may have to be started first
        return []
    found: list[str] = []

    def look() -> None:
        import psycopg

        from jobs.reports import list_kinds

        try:
            with psycopg.connect(url, connect_timeout=2, application_name="oomph completion") as connection:
                found.extend(row.kind for row in list_kinds(connection))
        except psycopg.Error:
            return

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(LOOK_SECONDS)
    return _beginning(filter(_HARMLESS.fullmatch, list(found)), incomplete)


def _beginning(words: Iterable[str], incomplete: str) -> list[str]:
    return sorted(word for word in words if word.startswith(incomplete))
