"""The kind `ingest-document`: from a file to text that can be searched.

    task.py      the declarations              submit.py    object, document and job, in the caller's transaction
    intake.py    a file on its way in          detect.py    what type it is, by file_types.py
    objects.py   the object store              keys.py      where each object of a document lies in it
    search.py    what is found                 question.py  what a search compares with vectors
    reports.py   how documents stand, and whether anybody works on them
    reindex.py   a new index, the old serves   delete.py    index, assets, original, row
    cleanup.py   what nobody owns any more     folder.py    a folder that is kept ingested
    settings.py  the variables, at the start   numbers.py   whole numbers in variables
    store_url.py what OBJECT_STORE_URL says    own_folders.py  what no walk over folders takes
    app.py       what a worker runs            pipeline/    what a child does: parse, chunk, embed, index

What is imported here imports neither the parser nor the object store, so a service pays for neither until it submits.
"""

from jobs.documents.delete import delete
from jobs.documents.errors import DocumentError, UnreadableDocument
from jobs.documents.question import QuestionVector
from jobs.documents.reindex import reindex
from jobs.documents.search import Hit, Hits, search
from jobs.documents.submit import Submission, submit
from jobs.documents.task import INGEST_DOCUMENT, IngestDocument, Source

__all__ = [
    "INGEST_DOCUMENT",
    "DocumentError",
    "Hit",
    "Hits",
    "IngestDocument",
    "QuestionVector",
    "Source",
    "Submission",
    "UnreadableDocument",
    "delete",
    "reindex",
    "search",
    "submit",
]
