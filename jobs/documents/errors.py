"""What is wrong with a document, in words for the person who submitted it."""

from jobs.task import PermanentError

EMPTY = "The file is empty."
PASSWORD = "The document is protected by a password."  # noqa: S105
UNSUPPORTED = "This type of file is not supported."
NOT_TEXT = "The file is not readable as text."
BROKEN_UTF8 = "The text is UTF-8 with damaged characters, the first at byte {}; save it anew in one encoding."
DAMAGED = "The document is damaged, or not of the type that its name says."
TOO_MUCH = "The document unpacks to far more data than a document holds."
NO_TEXT = "No text was found in the document. Scanned pages and pictures are not read."


class UnreadableDocument(PermanentError):
    """The document itself is at fault, so no further attempt can help. The message is one sentence for people."""
