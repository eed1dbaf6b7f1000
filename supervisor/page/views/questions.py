"""What a query string may ask for."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from starlette.convertors import IntegerConvertor, register_url_convertor

from supervisor.page.access import Refused
from supervisor.page.view import Params

MAX_WORD_CHARS = 500  # the longest key there is
LAST_ID = 2**63 - 1
PAGE_ROWS = 50

T = TypeVar("T")


class _RowId(IntegerConvertor):
    """An id in a path. Python does not read a number of thousands of digits, and PostgreSQL none of twenty."""

    regex = "[0-9]{1,18}"


register_url_convertor("row_id", _RowId())


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


def identity(params: Params, name: str) -> UUID | None:
    """A worker's id; None where it is empty. Raises `Refused`."""
    given = word(params, name)
    try:
        return None if given is None else UUID(given)
    except ValueError:
        raise Refused(400, f"{name} is an id such as 6f1c9d1e-8a52-4c7e-9a43-0d8a1f0c2b11.") from None


def moment(params: Params, name: str) -> datetime | None:
    """A moment in UTC, as a browser's field gives it; None where it is empty. Raises `Refused`."""
    given = word(params, name)
    if given is None:
        return None
    try:
        at = datetime.fromisoformat(given)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter of one that is in no year of UTC's
        raise Refused(400, f"{name} is a moment such as 2030-01-31T13:45, in UTC.") from None


def found(row: T | None, what: str) -> T:
    """`row`. Raises `Refused` where there is none."""
    if row is None:
        raise Refused(404, f"{what} does not exist.")
    return row
