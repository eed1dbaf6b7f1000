"""What a query string may ask for."""

from collections.abc import Collection
from typing import TypeVar

from supervisor.page.access import Refused
from supervisor.page.desk import Params

MAX_WORD_CHARS = 500  # the longest key there is
LAST_ID = 2**63 - 1
PAGE_ROWS = 50

T = TypeVar("T")


def word(params: Params, name: str) -> str | None:
    """A text to look for; None where it is empty. Raises `Refused`."""
    given = params.get(name, "").strip()
    if len(given) > MAX_WORD_CHARS or "\0" in given:
        raise Refused(400, f"{name} has more than {MAX_WORD_CHARS} characters, or a NUL in it.")
    return given or None


def one_of(params: Params, name: str, allowed: Collection[str]) -> str | None:
    """One of some words; None where it is empty. Raises `Refused`."""
    given = word(params, name)
    if given is not None and given not in allowed:
        raise Refused(400, f"{name} is one of {', '.join(allowed)}.")
    return given


def number(params: Params, name: str) -> int | None:
    """An id; None where it is empty. Raises `Refused`."""
    given = word(params, name)
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and int(given) <= LAST_ID):
        raise Refused(400, f"{name} is a whole number.")
    return int(given)


def found(row: T | None, what: str) -> T:
    """`row`. Raises `Refused` where there is none."""
    if row is None:
        raise Refused(404, f"{what} does not exist.")
    return row
