"""What is wrong with a document, in words for the person who submitted it."""

from jobs.task import PermanentError


class UnreadableDocument(PermanentError):
    """The document itself is at fault, so no further attempt can help. The message is one sentence for people."""


class DocumentError(Exception):
    """What was asked for does not apply to this document; the message says why. Nothing was changed."""
