"""What a check answers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"  # a worker works, and worse than it could; or nobody could look
    ERROR = "error"  # a worker would refuse to start, or not keep a promise


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report. `advice` says what to do, and is empty where all is well."""

    name: str
    level: Level
    found: str
    advice: str = ""


def ok(name: str, found: str) -> Finding:
    return Finding(name, Level.OK, found)


def warning(name: str, found: str, advice: str) -> Finding:
    return Finding(name, Level.WARNING, found, advice)


def error(name: str, found: str, advice: str) -> Finding:
    return Finding(name, Level.ERROR, found, advice)


def left_out(name: str, why: str, advice: str) -> Finding:
    """What was not looked at, which is never the same as fine."""
    return warning(name, f"left out: {why}", advice)


def surviving(name: str, check: Callable[[], Finding]) -> Finding:
    """What the check finds, or that it could not look."""
    try:
        return check()
    except Exception as problem:  # noqa: BLE001  (whatever it is, the other checks still have something to tell)
        return unreadable(name, problem)


async def surviving_async(name: str, check: Awaitable[Finding]) -> Finding:
    """As `surviving`; a time-out of the check's own is a problem like any other."""
    try:
        return await check
    except Exception as problem:  # noqa: BLE001  (as above)
        return unreadable(name, problem)


def unreadable(name: str, problem: Exception) -> Finding:
    told = " ".join(str(problem).split())
    why = f"{type(problem).__name__}: {told}" if told else type(problem).__name__
    return left_out(name, why, "Look at it by hand, or run this again as somebody who may.")
