"""Arrays as PostgreSQL reads them.

The driver writes a list too, and looks at each item for its type: that costs a claim more than its way to the server
and back.
"""

from collections.abc import Iterable


def numbers(values: Iterable[float]) -> str:
    return f"{{{','.join(map(str, values))}}}"


def texts(values: Iterable[str | None]) -> str:
    return f"{{{','.join(map(_text, values))}}}"


def _text(value: str | None) -> str:
    if value is None:
        return "NULL"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
