"""The files as they were submitted, in an object store, each under the SHA-256 of its content.

`OBJECT_STORE_URL` names the store: `file:///folder`, `s3://bucket/prefix`, `gs://...` or `az://...`, with credentials
in the environment variables of that store. Without it, the folder `oomph-objects` under the working folder is used:
the worker and whoever submits must then be started in the same one.
"""

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError, UnknownConfigurationKeyError
from obstore.store import from_url

from jobs.documents.errors import UnreadableDocument
from jobs.documents.store_url import default_url

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class StoreError(Exception):
    """The object store cannot be used; the message says which one and why."""


@dataclass(frozen=True, slots=True)
class Original:
    """A stored file: its SHA-256 in hexadecimal digits and its size in bytes."""

    sha256: str
    size: int

    @property
    def key(self) -> str:
        return f"originals/{self.sha256}"

    @classmethod
    def of(cls, content: bytes) -> "Original":
        return cls(hashlib.sha256(content).hexdigest(), len(content))


class Originals:
    """One object store. Blocks: a service on an event loop calls it in a thread."""

    def __init__(self, url: str | None = None) -> None:
        """`url` instead of OBJECT_STORE_URL. Raises `StoreError` for one that names no store."""
        self.url = url or os.environ.get("OBJECT_STORE_URL") or default_url()
        try:
            self._store = _open(self.url)
        except (ValueError, TypeError, OSError, BaseError, UnknownConfigurationKeyError) as error:
            raise StoreError(f"OBJECT_STORE_URL={self.url} cannot be used: {_first_line(error)}") from error

    def save(self, content: bytes) -> Original:
        """Store a file before the transaction that submits it. The same content is stored once.

        Raises `StoreError`, and nothing is stored then.
        """
        original = Original.of(content)
        try:
            if not self._has(original):
                obstore.put(self._store, original.key, content)
        except (BaseError, OSError) as error:
            raise StoreError(f"the object store {self.url} did not take a file: {_first_line(error)}") from error
        return original

    def load(self, original: Original) -> bytes:
        """The file as it was submitted.

        Raises `UnreadableDocument` where it is not there or is another one than was stored, and obstore's errors where
        the store does not answer: that may pass.
        """
        try:
            content = obstore.get(self._store, original.key).bytes().to_bytes()
        except FileNotFoundError:
            raise UnreadableDocument(
                f"The original is not in the object store {self.url}; the worker and whoever submits documents must "
                "use the same OBJECT_STORE_URL."
            ) from None
        if Original.of(content) != original:
            raise UnreadableDocument(f"The original in the object store {self.url} is not what was submitted.")
        return content

    def _has(self, original: Original) -> bool:
        try:
            # The size too: a store without atomic writes may hold a part of it.
            return obstore.head(self._store, original.key)["size"] == original.size
        except FileNotFoundError:
            return False


def _open(url: str) -> "ObjectStore":
    return from_url(url, mkdir=True) if url.startswith("file:") else from_url(url)


def _first_line(error: Exception) -> str:
    # What follows is the library's own debug output.
    return (str(error).splitlines() or [type(error).__name__])[0]
