class EmbeddedServerError(RuntimeError):
    """The server could not be started or stopped; the message says why and what to do."""
