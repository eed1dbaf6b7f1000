"""Where objects lie unless OBJECT_STORE_URL says otherwise; importing `objects` itself costs obstore."""

from pathlib import Path

DEFAULT_FOLDER = "oomph-objects"


def default_url() -> str:
    """The URL of a folder below the current one."""
    return (Path.cwd() / DEFAULT_FOLDER).as_uri()
