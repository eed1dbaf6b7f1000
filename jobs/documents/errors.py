"""What is wrong with a document or with what reads it, in words for people."""

from jobs.task import PermanentError

EMPTY = "The file is empty."
PASSWORD = "The document is protected by a password."  # noqa: S105
UNSUPPORTED = "This type of file is not supported."
NOT_TEXT = "The file is not readable as text."
BROKEN_UTF8 = "The text is UTF-8 with damaged characters, the first at byte {}; save it anew in one encoding."
DAMAGED = "The document is damaged, or not of the type that its name says."
TOO_MUCH = "The document unpacks to far more data than a document holds."
TOO_DEEP = "The document is nested far deeper than a document is."
NO_TEXT = "No text was found in the document. Scanned pages and pictures are not read."


class UnreadableDocument(PermanentError):
    """The document itself is at fault, so no further attempt can help. The message is one sentence for people."""


class DocumentError(Exception):
    """What was asked for does not apply to this document; the message says why. Nothing was changed."""


class EmbeddingRefused(PermanentError):
    """The embedder is set up wrongly or refuses what it is asked; no further attempt helps until that is mended."""


class EmbeddingError(Exception):
    """The embedder did not answer, or not with what was asked; a later attempt may do."""
