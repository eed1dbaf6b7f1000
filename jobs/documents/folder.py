"""Keeps a folder ingested: what is new or changed is submitted, what is gone is deleted.

What the folder held stands in `background_document_files`. A file is known by its path, size and time of change; only
one that differs is read. The document of a changed file goes on serving until the new one is READY. A document that
others had submitted before is never deleted for a file's sake; one that they submit later is the folder's.

Hidden files and links are left out: whoever may write to the folder must not make a worker read elsewhere. So are the
object store and the folder of a PostgreSQL server, which may lie inside. A folder that cannot be read deletes nothing.
"""

import logging
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from psycopg.errors import LockNotAvailable

from jobs.documents.database import Connection, connected
from jobs.documents.delete import delete
from jobs.documents.errors import DocumentError, UnreadableDocument
from jobs.documents.objects import Objects
from jobs.documents.own_folders import own_folder
from jobs.documents.store_url import store_folder
from jobs.documents.submit import DEFAULT_COLLECTION, Submission, submit
from jobs.sql import statement
from jobs.task import PermanentError

CLIENT = "oomph ingest-folder"  # as the server's views show it
SETTLED_SECONDS = 2.0  # a file that was changed within them may still be being written
MAX_PATH_BYTES = 2_000  # with the folder's: an index of PostgreSQL takes no more than 2,700
MTIME_NS = range(-(2**63), 2**63)  # what the column takes; a file's may be anything
LOCK_TIMEOUT = "5s"  # whoever submits or deletes the same may take long to commit, and must not stop the others
LOOK_SECONDS = 120.0  # then the rest is left to the next look; well within the job's time

log = logging.getLogger("oomph.documents")


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file as it was when it was looked at last. `status` is its document's."""

    path: bytes
    size: int
    mtime_ns: int
    document_id: UUID | None
    replaces: UUID | None
    status: str | None

    @property
    def is_between(self) -> bool:
        """Its document is being read in the place of one that still serves: neither can be given up now."""
        return self.replaces is not None and self.status not in ("READY", "FAILED", "PENDING", None)


class FolderUnusable(PermanentError):
    """The folder cannot be watched as it is; the message says why. Nothing was deleted."""


def watch(folder: Path, collection: str = DEFAULT_COLLECTION) -> None:
    """Look at the folder once: the work of `ingest-folder`. Raises `FolderUnusable`."""
    with connected(CLIENT) as db:
        Watch(db, Objects(), folder, collection).look()


class Watch:
    """`db` is in autocommit mode: every file is a transaction of its own."""

    def __init__(self, db: Connection, objects: Objects, folder: Path, collection: str = DEFAULT_COLLECTION) -> None:
        self._db = db
        self._objects = objects
        self._folder = folder
        self._collection = collection

    def look(self) -> None:
        """Bring the documents in step with the folder, as far as that can be done now; the next look does the rest."""
        until = time.monotonic() + LOOK_SECONDS
        known = {each.path: each for each in self._known()}
        gone = set(known)
        unread: list[bytes] = []
        for path in self._walk(unread):
            gone.discard(path)
            if time.monotonic() > until:
                log.info("%s: the rest is left to the next look", self._folder)
                return
            self._take(path, known.get(path))
        for path in gone:
            if not any(path.startswith(below) for below in unread):
                self._drop(known[path])

    def _take(self, path: bytes, before: KnownFile | None) -> None:
        try:
            with _opened(self._folder / os.fsdecode(path)) as (file, found):
                if before is not None and (before.size, before.mtime_ns) == (found.st_size, _mtime_ns(found)):
                    self._retire_replaced(before)
                elif _is_settled(found) and not (before and before.is_between):
                    self._submit(path, file, found, before)
        except OSError as error:
            log.warning("%s was not read: %s", _shown(path), error.strerror or error)
        except (DocumentError, LockNotAvailable) as error:
            log.info("%s is left to the next look: %s", _shown(path), error)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._db.transaction():
            self._db.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
            yield

    def _submit(self, path: bytes, file: BinaryIO, found: os.stat_result, before: KnownFile | None) -> None:
        given: Submission | None = None
        refused = None
        with self._transaction():
            try:
                given = submit(self._db, os.fsdecode(path), file, collection=self._collection, objects=self._objects)
            except UnreadableDocument as error:
                refused = str(error)
            document_id = given.document_id if given else None
            if given is not None and given.is_new:
                self._run("mark_document_watched", document_id=document_id)
            earlier = self._earlier(before, document_id)
            if refused is not None and earlier is not None:
                self._delete(path, earlier)
                earlier = None
            self._run(
                "save_document_file",
                path=path,
                size=found.st_size,
                mtime_ns=_mtime_ns(found),
                document_id=document_id,
                replaces=earlier,
                refused=refused,
            )
        if refused is not None:
            log.info("%s is no document: %s", _shown(path), refused)

    def _earlier(self, before: KnownFile | None, document_id: UUID | None) -> UUID | None:
        """The document that serves until the new one is READY: the last one that was. One in between goes at once."""
        if before is None:
            return None
        serving = before.replaces or before.document_id
        if before.replaces is not None and before.document_id not in (None, document_id):
            self._delete(before.path, before.document_id)
        return None if serving == document_id else serving

    def _retire_replaced(self, file: KnownFile) -> None:
        if file.replaces is not None and file.status == "READY":
            with self._transaction():
                self._delete(file.path, file.replaces)
                self._run("settle_document_file", path=file.path)

    def _drop(self, file: KnownFile) -> None:
        try:
            with self._transaction():
                for document_id in (file.replaces, file.document_id):
                    if document_id is not None:
                        self._delete(file.path, document_id)
                self._run("forget_document_file", path=file.path)
        except (DocumentError, LockNotAvailable) as error:
            log.info("%s is gone; its document is deleted later: %s", _shown(file.path), error)

    def _delete(self, path: bytes, document_id: UUID | None) -> None:
        """Delete a document that this folder made, unless another file holds it too."""
        if self._run("is_only_document_of_file", path=path, document_id=document_id):
            delete(self._db, document_id)  # type: ignore[arg-type]

    def _known(self) -> Iterator[KnownFile]:
        for row in self._run("document_files"):
            yield KnownFile(*row)

    def _run(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        cursor = self._db.execute(statement(query), {"folder": os.fsencode(self._folder), **parameters})
        return cursor.fetchall() if cursor.description else []

    def _walk(self, unread: list[bytes]) -> Iterator[bytes]:
        """Paths below the folder, sorted. What cannot be entered is told in `unread`."""

        def cannot_enter(error: OSError) -> None:
            folder = Path(error.filename)
            if folder == self._folder:
                raise FolderUnusable(f"DOCUMENT_FOLDER={folder} cannot be read: {error.strerror}") from error
            unread.append(os.fsencode(folder.relative_to(self._folder)) + b"/")
            log.warning("%s was not entered: %s", ascii(error.filename), error.strerror)

        store = store_folder(self._objects.url)
        for inner, folders, names in os.walk(self._folder, onerror=cannot_enter):
            if why := own_folder(inner, folders, names, store):
                if Path(inner) == self._folder:  # what it held before must not count as removed
                    raise FolderUnusable(f"DOCUMENT_FOLDER={inner} is not watched: {why}; name another folder")
                _say_left_out(inner, why)
                folders.clear()
                continue
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for path in (Path(inner, name) for name in sorted(names) if not name.startswith(".")):
                if not path.is_symlink():
                    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
                        yield os.fsencode(path.relative_to(self._folder))
                    else:
                        log.warning(
                            "a file is left out, its path has over %s bytes: %s", MAX_PATH_BYTES, ascii(path.name)
                        )


@cache
def _say_left_out(folder: str, why: str) -> None:
    """Once in a process, and not at every look."""
    log.info("%s is left out: %s", ascii(folder), why)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    # Without waiting and without following: what was a file when it was listed may be a pipe or a link by now.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is no regular file")
        yield file, found


def _mtime_ns(found: os.stat_result) -> int:
    return max(MTIME_NS.start, min(found.st_mtime_ns, MTIME_NS.stop - 1))


def _is_settled(found: os.stat_result) -> bool:
    # A time to come tells nothing of when the file was written, and must not keep it out until then.
    return not 0 <= time.time() - found.st_mtime <= SETTLED_SECONDS


def _shown(path: bytes) -> str:
    return ascii(os.fsdecode(path))
