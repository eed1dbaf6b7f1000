"""Moments, spans and sizes, as people read them."""

import re
from datetime import UTC, datetime, timedelta

from markupsafe import Markup

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_AGE = re.compile(r"(<time [^>]*>)[^<]*")


def span(seconds: float | timedelta) -> str:
    """A length of time, in its two largest units: `1 h 30 min`."""
    length = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if 0 < abs(length) < 1:
        return f"{length * 1000:,.0f} ms"
    rest, parts = int(abs(length)), []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return ("-" if length < 0 else "") + (" ".join(parts[:2]) or "0 s")


def moment(at: datetime | None, now: datetime) -> Markup:
    """A moment as `3 min ago`, which the page's script keeps true; the date is in the element and its title."""
    if at is None:
        return Markup("")
    away = (at - now).total_seconds()
    told = f"in {_largest(away)}" if away >= 1 else f"{_largest(-away)} ago" if away <= -1 else "now"
    exact = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(exact, date(at), told)


def without_ages(html: str) -> str:
    """HTML without what every `moment` in it says of now: two that are equal show the same, whenever they were made."""
    return _AGE.sub(r"\1", html)


def date(at: datetime) -> str:
    """A moment in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def typed(at: datetime | None) -> str:
    """A moment as a browser's field has it, in UTC; empty for None."""
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M")


def size(count: float) -> str:
    """Bytes: `1.4 MB` of 1,048,576."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            return f"{count:,.0f} {unit}" if count >= 100 or count == int(count) else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError("every size has a unit")


def megabytes(count: float) -> str:
    """MiB: `1.4 GB`."""
    return size(count * 1024 * 1024) if count else "0 MB"


def _largest(seconds: float) -> str:
    return next(f"{int(seconds // size)} {unit}" for unit, size in _UNITS if seconds >= size or unit == "s")
