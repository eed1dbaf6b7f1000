"""Rows of statements as the dataclasses that name their columns, whatever driver brought them."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from jobs.connection import Program, Row, Statement
from jobs.sql import statement

MAX_LIMIT = 1_000  # rows of one list: a page for people, not an export
MAX_DIGITS = 4_000  # of a number that Python reads, and writes again, without being asked twice

# Drivers differ in what they decode, so statements give these as text.
_JSON_COLUMNS = frozenset({"payload", "result", "error", "evidence", "detail", "deliveries", "slots"})

R = TypeVar("R")


def rows_of(row_type: type[R], query: str, **parameters: Any) -> Program[list[R]]:
    """The rows of the statement of that name; its columns are the fields of `row_type`, in their order."""
    rows = yield Statement(statement(query), parameters)
    return [row_as(row_type, row) for row in rows]


def row_as(row_type: type[R], row: Row) -> R:
    """One row as its dataclass."""
    named = zip(fields(row_type), row, strict=True)  # type: ignore[arg-type]  # R is a dataclass
    return row_type(*(_decoded(field.name, value) for field, value in named))


def first_of(rows: Program[list[R]]) -> Program[R | None]:
    found = yield from rows
    return found[0] if found else None


def bounded(limit: int) -> int:
    """`limit` itself. Raises `ValueError` where it is not one of a list."""
    if not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit={limit}: 1 to {MAX_LIMIT:,} are allowed")
    return limit


def _decoded(name: str, value: Any) -> Any:
    if name in _JSON_COLUMNS and value is not None:
        try:
            decoded: Mapping[str, Any] = json.loads(value, parse_int=_number)
            return decoded
        except RecursionError:  # jsonb may be nested deeper than Python reads: it stays the text that it is
            return str(value)
    return value


def _number(digits: str) -> int | str:
    """Python reads no number of thousands of digits, and jsonb holds them: it stays the text that it is."""
    return int(digits) if len(digits) <= MAX_DIGITS else digits
