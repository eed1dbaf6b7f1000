"""What a worker runs to ingest documents: `WORKER_APP=jobs.documents.app:app`.

`DOCUMENT_FOLDER` names a folder that is kept ingested: every `DOCUMENT_FOLDER_SECONDS`, 60 by default, what is new or
changed in it is submitted to the collection `DOCUMENT_FOLDER_COLLECTION`, and what is gone is deleted. All workers of
the app need the same settings, and see the same folder.
"""

import logging
import os
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from jobs.app import App, Handler, JobContext, Schedule, Tick
from jobs.documents.store_url import default_url
from jobs.documents.submit import DEFAULT_COLLECTION
from jobs.documents.task import (
    CLEAN_UP_DOCUMENT,
    INGEST_DOCUMENT,
    INGEST_FOLDER,
    SWEEP_OBJECTS,
    CleanUpDocument,
    IngestDocument,
)
from jobs.extras import how_to_install
from jobs.loading import AppError
from jobs.task import PermanentError

NEEDED = ("kreuzberg", "obstore", "pypdfium2", "PIL", "charset_normalizer")
# By the scheme of EMBEDDING_URL: each child would take half a second to import the library of a local model.
EMBEDDERS = {"http": "embed_http", "https": "embed_http", "file": "embed_local"}
SWEEP_EVERY = timedelta(days=1)
# Set for the processes that a worker starts: a folder that is away for a while must not keep a template from starting.
CHECKED = "OOMPH_DOCUMENT_SETTINGS_CHECKED"

log = logging.getLogger("oomph.documents")


def app() -> App:
    """Raises `ImportError` where the extra `documents` is not installed, `AppError` for impossible settings."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ImportError(f"{' and '.join(missing)} not installed: {how_to_install('documents')}")
    embedder = EMBEDDERS.get(os.environ.get("EMBEDDING_URL", "").partition(":")[0])
    if embedder == "embed_local" and find_spec("model2vec") is None:
        raise ImportError(f"EMBEDDING_URL=file:... needs model2vec: {how_to_install('embeddings')}")
    _check_settings()
    # Settled here, where the worker's working folder is still the current one: a child has another.
    os.environ.setdefault("OBJECT_STORE_URL", default_url())
    schedules = [Schedule("sweep-document-objects", SWEEP_OBJECTS, SWEEP_EVERY)]
    if folder := os.environ.get("DOCUMENT_FOLDER"):
        from jobs.documents.settings import folder_seconds

        os.environ["DOCUMENT_FOLDER"] = str(Path(folder).absolute())
        schedules.append(Schedule("ingest-folder", INGEST_FOLDER, timedelta(seconds=folder_seconds())))
    return App(
        handlers=[
            Handler(INGEST_DOCUMENT, ingest_document),
            Handler(CLEAN_UP_DOCUMENT, clean_up_document),
            Handler(SWEEP_OBJECTS, sweep_objects),
            Handler(INGEST_FOLDER, ingest_folder),
        ],
        schedules=schedules,
        preload=[
            "kreuzberg",
            "obstore",
            "jobs.documents.pipeline.handler",
            *([f"jobs.documents.pipeline.{embedder}"] if embedder else []),
        ],
    )


# Each imports its work here and not above: the supervisor loads this app too, and has no use for a parser, nor for an
# object store before a job needs one.


def ingest_document(payload: IngestDocument, job: JobContext) -> None:
    from jobs.documents.pipeline.handler import ingest

    ingest(payload, job)


def clean_up_document(payload: CleanUpDocument) -> None:
    from jobs.documents.cleanup import clean_up

    clean_up(payload)


def sweep_objects(tick: Tick) -> None:
    from jobs.documents.cleanup import sweep

    sweep(tick)


def ingest_folder(_: Tick) -> None:
    from jobs.documents.folder import watch

    folder = os.environ.get("DOCUMENT_FOLDER")
    if not folder:
        raise PermanentError("this worker has no DOCUMENT_FOLDER: it must be the same on all workers of an app")
    watch(Path(folder), os.environ.get("DOCUMENT_FOLDER_COLLECTION") or DEFAULT_COLLECTION)


def _check_settings() -> None:
    if CHECKED in os.environ:
        return
    from jobs.documents.settings import misspelt, problems

    for name, meant in misspelt():
        log.warning("%s is not a setting and has no effect; is %s meant?", name, meant)
    if wrong := problems():
        raise AppError("\n  ".join(["the settings of documents cannot be used, for these reasons:", *wrong]))
    os.environ[CHECKED] = "1"
