"""What is wrong with a document or with what reads it, in words for people."""

from jobs.task import PermanentError


class UnreadableDocument(PermanentError):
    """The document itself is at fault, so no further attempt can help. The message is one sentence for people."""


class EmbeddingRefused(PermanentError):
    """The embedder is set up wrongly or refuses what it is asked, so no further attempt can help until that is mended."""


class EmbeddingError(Exception):
    """The embedder did not answer, or not with what was asked; a later attempt may do."""
