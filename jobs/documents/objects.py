"""The object store: files as they were submitted, and what was made of them. `keys.py` says where.

`OBJECT_STORE_URL` names the store: `file:///folder`, `s3://bucket/prefix`, `gs://...` or `az://...`, with credentials
in the environment variables of that store. Without it, the folder `oomph-objects` under the working folder is used:
the worker and whoever submits must then be started in the same one.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

import obstore
from obstore.exceptions import BaseError, UnknownConfigurationKeyError
from obstore.store import from_url

from jobs.documents.store_url import default_url, store_problem

if TYPE_CHECKING:
    from obstore.store import ObjectStore

READ_BYTES = 4 << 20  # a piece of a file on its way, of which the store holds a few
PARTS_AT_ONCE = 2  # of 5 MiB each; more would count against a child's memory
MAX_RETRIES = 5
RETRY_TIMEOUT = timedelta(seconds=30)  # a job that is tried again later should not wait here for minutes
REMOVE_BATCH = 1_000  # what S3 takes in one request
# What the library says, and what is meant by it.
HINTS = {
    "169.254.169.254": "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_REGION",
    "builder error": "an endpoint of http:// needs AWS_ALLOW_HTTP=true",
    "Permission denied": "whoever submits and whoever runs the jobs must be one user, or share a group by a default "
    "ACL of the store's folder",
}

_UNFINISHED = re.compile(r"#\d+$")  # in a key's own name, the store encodes the sign


class StoreError(Exception):
    """The object store cannot be used, or did not answer; the message says which one and why."""


class ObjectMissing(Exception):
    """There is no object of this key."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """`size` in bytes; `modified` by the store's clock."""

    key: str
    size: int
    modified: datetime


class Objects:
    """One object store. Blocks: a service on an event loop calls it in a thread."""

    def __init__(self, url: str | None = None) -> None:
        """`url` instead of OBJECT_STORE_URL. Raises `StoreError` for one that names no store."""
        self.url = url or os.environ.get("OBJECT_STORE_URL") or default_url()
        if problem := store_problem(self.url):
            raise StoreError(f"OBJECT_STORE_URL={self.url} cannot be used: {problem}")
        try:
            self._store = _open(self.url)
        except (ValueError, TypeError, OSError, BaseError, UnknownConfigurationKeyError) as error:
            raise StoreError(f"OBJECT_STORE_URL={self.url} cannot be used: {_first_line(error)}") from error

    def put(self, key: str, content: bytes | Path) -> None:
        """Write an object, or a file as one, whole or not at all. Raises `StoreError`."""
        with self._told(f"did not take {key}"):
            obstore.put(self._store, key, content, max_concurrency=PARTS_AT_ONCE)

    def get(self, key: str) -> bytes:
        """A small object. Raises `ObjectMissing` and `StoreError`."""
        with self._told(f"did not give {key}"), _missing(key):
            return obstore.get(self._store, key).bytes().to_bytes()

    def fetch(self, key: str, path: Path) -> str:
        """Write an object to a new file, a piece at a time; return the SHA-256 of it in hexadecimal digits.

        Raises `ObjectMissing` and `StoreError`.
        """
        digest = hashlib.sha256()
        with path.open("xb") as file, self._told(f"did not give {key}"), _missing(key):
            for piece in obstore.get(self._store, key).stream(min_chunk_size=READ_BYTES):
                digest.update(piece)
                file.write(piece)
        return digest.hexdigest()

    def size(self, key: str) -> int | None:
        """Bytes of an object; None where there is none. Raises `StoreError`."""
        try:
            with self._told(f"did not tell of {key}"), _missing(key):
                return int(obstore.head(self._store, key)["size"])
        except ObjectMissing:
            return None

    def below(self, prefix: str) -> Iterator[StoredObject]:
        """The objects whose keys begin with `prefix` and a slash. Raises `StoreError`."""
        with self._told(f"did not list {prefix}"):
            for batch in obstore.list(self._store, prefix, chunk_size=REMOVE_BATCH):
                for each in batch:
                    yield StoredObject(each["path"], each["size"], each["last_modified"])

    def remove(self, keys: Iterable[str]) -> int:
        """Remove objects; those that are gone already count as removed. Returns how many. Raises `StoreError`."""
        wanted = list(keys)
        with self._told(f"did not remove {len(wanted)} objects"):
            for start in range(0, len(wanted), REMOVE_BATCH):
                try:
                    obstore.delete(self._store, wanted[start : start + REMOVE_BATCH])
                except FileNotFoundError:  # a folder says so, at the first one that is missing
                    for key in wanted[start : start + REMOVE_BATCH]:
                        self._remove_one(key)
        return len(wanted)

    def unfinished(self, prefix: str) -> Iterator[StoredObject]:
        """What was being written below `prefix` in a folder when its process was killed, for `remove_unfinished`.

        A folder's objects are written under a name of their own first, which no listing shows: their key, `#` and a
        number. Of uploads to S3 that were never finished, a rule of the bucket takes care. Raises `StoreError`.
        """
        if (root := self._folder()) is None:
            return
        with self._told(f"did not list {prefix}"):
            for inner, _, names in os.walk(root / prefix):  # passes over what goes meanwhile
                for name in filter(_UNFINISHED.search, names):
                    path = Path(inner, name)
                    with suppress(FileNotFoundError):  # finished by now
                        found = path.lstat()
                        modified = datetime.fromtimestamp(found.st_mtime, UTC)
                        yield StoredObject(path.relative_to(root).as_posix(), found.st_size, modified)

    def remove_unfinished(self, key: str) -> None:
        """Remove what `unfinished` gave. Raises `StoreError`."""
        if (root := self._folder()) is not None:
            with self._told(f"did not remove {key}"):
                (root / key).unlink(missing_ok=True)
                _remove_empty((root / key).parent)

    def _folder(self) -> Path | None:
        return Path(url2pathname(urlsplit(self.url).path)) if self.url.startswith("file:") else None

    def _remove_one(self, key: str) -> None:
        with suppress(FileNotFoundError):
            obstore.delete(self._store, key)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except ObjectMissing:
            raise
        except (BaseError, OSError) as error:
            raise StoreError(f"the object store {self.url} {what}: {_first_line(error)}{_hint(error)}") from error


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # as soon as one holds anything
        while True:
            folder.rmdir()
            folder = folder.parent


@contextmanager
def _missing(key: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectMissing(f"there is no object {key} in the object store") from error


def _open(url: str) -> "ObjectStore":
    if url.startswith("file:"):
        return from_url(url, mkdir=True, automatic_cleanup=True)
    return from_url(url, retry_config={"max_retries": MAX_RETRIES, "retry_timeout": RETRY_TIMEOUT})


def _hint(error: Exception) -> str:
    told = str(error)
    return "".join(f" ({hint})" for sign, hint in HINTS.items() if sign in told)


def _first_line(error: Exception) -> str:
    # What follows is the library's own debug output.
    return (str(error).splitlines() or [type(error).__name__])[0]
