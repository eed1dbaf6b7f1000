"""What OBJECT_STORE_URL says; importing `objects` itself costs obstore."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

DEFAULT_FOLDER = "oomph-objects"
# What the library also takes for a bucket stands after what the documentation names.
SCHEMES = ("file", "s3", "gs", "az", "s3a", "azure", "adl", "abfs", "abfss", "https")


def default_url() -> str:
    """Where objects lie unless OBJECT_STORE_URL says otherwise: the URL of a folder below the current one."""
    return (Path.cwd() / DEFAULT_FOLDER).as_uri()


def store_folder(url: str) -> Path | None:
    """The folder that is the store; None where none is."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def store_problem(url: str) -> str | None:
    """Why a URL can be no store's, and what to write; None where it may be one. Opens nothing."""
    scheme = url.partition(":")[0].lower() if ":" in url else ""
    if not scheme or (scheme == "file" and not url.startswith("file:///")):
        path = url.removeprefix("file:").removeprefix("//") or DEFAULT_FOLDER
        return f"a folder is written {Path(path).absolute().as_uri()}, a bucket s3://bucket/prefix"
    if scheme not in SCHEMES:
        return "allowed are file:///folder, s3://bucket/prefix, gs://bucket/prefix and az://container/prefix"
    return None
