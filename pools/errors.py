"""How an exception becomes a stored error: type, message, last frames."""

import traceback

from pydantic import ValidationError

from jobs.outcome import JobError
from jobs.redaction import PLAIN, Redactor

LAST_FRAMES = 30


def describe(error: BaseException, redactor: Redactor = PLAIN) -> JobError:
    """The exception with its last frames and its causes. Never raises, whatever its own code or fields do.

    What `redactor` knows is taken out before anything is cut, since half a secret would not be found.
    """
    told = (_name(type(error)), _message(error), _frames(error))
    return JobError(*map(redactor.text, told))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except MemoryError:
        raise
    except BaseException as broken:  # noqa: BLE001  (a hostile __str__ may raise anything, also SystemExit)
        return f"(its message could not be read: {type(broken).__name__})"


def _frames(error: BaseException) -> str:
    try:
        told = traceback.TracebackException.from_exception(error, limit=-LAST_FRAMES, compact=True).format()
        return "".join(told)
    except MemoryError:
        raise
    except BaseException:  # noqa: BLE001  (a SyntaxError with odd fields, notes that raise: the frames alone are plain)
        return "".join(traceback.format_tb(error.__traceback__, limit=-LAST_FRAMES))


def invalid_payload(error: ValidationError) -> JobError:
    """What is wrong with a payload, without its values: they may be secrets.

    The kind of each problem and not its message, into which pydantic and a user's validator may put the value.
    """
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = "; ".join(
        f"{'.'.join(map(str, detail['loc'])) or 'payload'}: {detail['type'].replace('_', ' ')}" for detail in found
    )
    return JobError("InvalidPayload", f"the payload does not fit {error.title}: {told}")


def _name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
