"""What a worker runs to ingest documents: `WORKER_APP=jobs.documents.app:app`."""

import os
from importlib.util import find_spec

from jobs.app import App, Handler, JobContext
from jobs.documents.store_url import default_url
from jobs.documents.task import INGEST_DOCUMENT, IngestDocument

NEEDED = ("kreuzberg", "obstore", "pypdfium2", "PIL", "charset_normalizer")


def app() -> App:
    """Raises `ImportError` where the extra `documents` is not installed."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ImportError(f"{' and '.join(missing)} not installed; install oomph[documents]")
    # Settled here, where the worker's working folder is still the current one: a child has another.
    os.environ.setdefault("OBJECT_STORE_URL", default_url())
    return App(
        handlers=[Handler(INGEST_DOCUMENT, ingest_document)],
        preload=["kreuzberg", "obstore", "jobs.documents.pipeline.handler"],
    )


def ingest_document(payload: IngestDocument, job: JobContext) -> None:
    # Here and not above: the supervisor loads this app too, and has no use for a parser.
    from jobs.documents.pipeline.handler import ingest

    ingest(payload, job)
