"""Signs that an exception comes from exhausted memory, however the library at hand words it."""

import errno
import sys
from collections.abc import Iterator
from dataclasses import dataclass

MAX_CHAIN = 100  # exceptions looked at; a chain can be a cycle of any length

# Native code words it so when an allocation failed and it had no MemoryError to raise.
_WORDS = ("std::bad_alloc", "cannot allocate memory", "out of memory")
_NO_THREAD = "can't start new thread"  # of memory only where little of it was left: it may be the number of processes
_EXHAUSTED = "out of memory"
_ABORTED = frozenset({-6, 134})  # SIGABRT, as a child of ours or as a shell reports it: std::bad_alloc, V8 at its limit
_KILLED = frozenset({-9, 137})


@dataclass(frozen=True, slots=True)
class MemorySign:
    """What pointed at memory, beside the error. `lost_helper`: a helper died by SIGKILL, which alone proves nothing."""

    text: str
    lost_helper: bool = False


def memory_sign(error: BaseException, *, is_near_limit: bool) -> MemorySign | None:
    """The first sign in the error, its causes, its contexts and the members of its groups."""
    words = (*_WORDS, _NO_THREAD) if is_near_limit else _WORDS
    for link in _chain(error):
        if sign := _helper_sign(link):
            return sign
        if exhausted := _exhausted(link, words):  # which the error itself tells already
            return MemorySign(_EXHAUSTED if link is error else f"{_EXHAUSTED}: {exhausted}")
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting and len(seen) < MAX_CHAIN:
        link = waiting.pop(0)
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            waiting += link.exceptions


def _helper_sign(error: BaseException) -> MemorySign | None:
    subprocess = sys.modules.get("subprocess")  # whoever raises its error has imported it
    if subprocess is None or not isinstance(error, subprocess.CalledProcessError):
        return None
    if error.returncode in _ABORTED:
        return MemorySign(f"a helper process aborted ({error.returncode})")
    if error.returncode in _KILLED:
        return MemorySign(f"a helper process was killed by SIGKILL ({error.returncode})", lost_helper=True)
    return None


def _exhausted(error: BaseException, signs: tuple[str, ...]) -> str | None:
    """How this error says that memory was refused."""
    name = type(error).__name__
    if isinstance(error, MemoryError):  # numpy's and pyarrow's own types are subclasses
        return name
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return f"{name} ENOMEM"
    if isinstance(error, (RuntimeError, OSError, SystemError)):
        text = str(error).lower()
        return next((f"{name}: {words}" for words in signs if words in text), None)
    return None
