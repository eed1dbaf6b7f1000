"""Which errors of a start or a command a person can mend, and what is said about them."""

import errno


class CommandError(Exception):
    """A command refuses or cannot go on; the message is one paragraph that says why and what to do."""


def explain(error: Exception) -> str | None:
    """The paragraph for an expected error; None for one that is a fault of ours."""
    if isinstance(error, CommandError):
        return str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "no space is left where this command writes; what it did before is done"
    # Here and not above: a command that succeeds needs none of them.
    from psycopg.errors import ReadOnlySqlTransaction

    from jobs.control import ControlError
    from jobs.documents.errors import DocumentError
    from jobs.loading import AppError
    from jobs.migrate import SchemaError
    from jobs.unavailable import DatabaseUnavailable, Locked
    from pools.process import NotSupported
    from pools.template_hold import TemplateError
    from supervisor.embedded import EmbeddedServerError
    from supervisor.monitor.endpoint import EndpointError
    from supervisor.settings import SettingsError

    match error:
        case SettingsError():
            lines = str(error).splitlines()
            return lines[0] if len(lines) == 1 else "\n  ".join(["nothing was started, for these reasons:", *lines])
        case Locked():
            return f"the database refuses, because another session holds a lock that is needed: {error}"
        case DatabaseUnavailable() if isinstance(error.__cause__, ReadOnlySqlTransaction):
            return f"the database refuses, because it is read-only: {error}"
        case DatabaseUnavailable():
            return f"the database does not answer: {error}"
        case ControlError() | DocumentError() | AppError() | SchemaError():
            return str(error)
        case EmbeddedServerError() | EndpointError() | TemplateError() | NotSupported():
            return str(error)
        case _:
            return None
