"""The kind `ingest-document`: from a file to text that can be searched.

    task.py        the declaration             ingest.py     submit: document and job in the caller's transaction
    originals.py   the files as they came      search.py     full-text search over what is READY
    detect.py      what type a file is         file_types.py the types that are read, and the signs of others
    app.py         what a worker runs          reports.py    how documents stand, and whether anybody works on them
    pipeline/      what a child does with a document: fetch, parse, chunk, write

What stands here imports neither the parser nor the object store, so a service pays for neither.
"""

from jobs.documents.errors import UnreadableDocument
from jobs.documents.ingest import Submission, submit
from jobs.documents.search import Hit, search
from jobs.documents.task import INGEST_DOCUMENT, IngestDocument

__all__ = ["INGEST_DOCUMENT", "Hit", "IngestDocument", "Submission", "UnreadableDocument", "search", "submit"]
