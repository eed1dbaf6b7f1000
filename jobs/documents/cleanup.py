"""Makes the object store hold what the documents' rows say, and nothing else.

The rule that makes this safe at any time, beside running attempts and however late: look at the objects first, and ask
the database afterwards whose they are. Only a running attempt stores objects, each in an edition of its own; so what
was seen, and belongs neither to the document nor to an attempt that runs, is nobody's for good.
"""

import logging
from datetime import datetime, timedelta
from itertools import groupby
from uuid import UUID

from jobs.app import Tick
from jobs.documents.database import Connection, connected
from jobs.documents.keys import PREFIX, document_prefix, edition_prefix, original_key
from jobs.documents.objects import Objects
from jobs.documents.task import CleanUpDocument
from jobs.sql import statement

CLIENT = "oomph clean-up"  # as the server's views show it
# A file is stored before its document's row is committed, so what is younger may still get one.
UNKNOWN_FOR = timedelta(days=1)

log = logging.getLogger("oomph.documents")


def clean_up(payload: CleanUpDocument) -> None:
    """The work of `clean-up-document`."""
    with connected(CLIENT) as db:
        cleanup_partial_index(db, Objects(), payload.document_id)


def sweep(_: Tick) -> None:
    """The work of `sweep-document-objects`: what belongs to no document, and is older than a day, goes.

    So does the table of a model that no document is embedded by any more. A database without any document is taken for
    the wrong one, new or restored: to it everything would be nobody's.
    """
    objects = Objects()
    with connected(CLIENT) as db:
        if db.execute(statement("documents_exist")).fetchone():
            if removed := _sweep_objects(db, objects, _now(db) - UNKNOWN_FOR):
                log.warning("%s objects in %s belonged to no document and are removed", removed, objects.url)
        else:
            log.info("nothing in %s is removed: the database holds no document", objects.url)
        for (model,) in db.execute(statement("forget_models")).fetchall():
            log.info("no document has vectors of the model %s any more; their table is dropped", model)


def _now(db: Connection) -> datetime:
    row = db.execute(statement("clock")).fetchone()
    assert row is not None
    now: datetime = row[0]
    return now


def _sweep_objects(db: Connection, objects: Objects, before: datetime) -> int:
    removed = 0
    for each in objects.unfinished(PREFIX):
        if _uuid(each.key.split("/")[1]) is not None and each.modified < before:
            objects.remove_unfinished(each.key)
            removed += 1
    # Every store lists what is below one prefix together.
    for name, group in groupby(objects.below(PREFIX), key=lambda each: each.key.split("/")[1]):
        stored = list(group)
        document_id = _uuid(name)
        if document_id is not None and all(each.modified < before for each in stored):
            removed += _remove_all_but_own(db, objects, document_id, [each.key for each in stored])
    return removed


def cleanup_partial_index(db: Connection, objects: Objects, document_id: UUID) -> int:
    """Remove what attempts that came to nothing have stored; all objects, and then the row, of a deleted document.

    Returns how many objects. Never touches what the document, or an attempt at it that runs now, calls its own. Raises
    `StoreError`; then it is to be done again.
    """
    stored = [each.key for each in objects.below(document_prefix(document_id))]
    return _remove_all_but_own(db, objects, document_id, stored)


def _remove_all_but_own(db: Connection, objects: Objects, document_id: UUID, stored: list[str]) -> int:
    row = db.execute(statement("document_objects"), {"document_id": document_id}).fetchone()
    is_deleted, edition, running = row or (True, None, None)
    original = original_key(document_id)
    if is_deleted:
        # In this order: while the original is there, somebody who looks knows what the rest was made from.
        removed = objects.remove(key for key in stored if key != original)
        removed += objects.remove(key for key in stored if key == original)
        db.execute(statement("erase_document"), {"document_id": document_id})
        return removed
    own = {f"{edition_prefix(document_id, each)}/" for each in (edition, running) if each is not None}
    return objects.remove(
        key for key in stored if key != original and not any(key.startswith(prefix) for prefix in own)
    )


def _uuid(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:  # somebody else's, under our prefix
        return None
