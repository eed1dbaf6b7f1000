"""Where the objects of a document lie in the store. All of one document's are below one prefix:

    documents/ID/original                       the file as it was submitted
    documents/ID/EDITION/snapshot               what its index is made from
    documents/ID/EDITION/assets/KEY             its images

An edition is named after the attempt that writes it, by job and claim number. So no attempt can overwrite or remove
what another one wrote, however late it is; the document's row names the edition that counts, and changes it in the
transaction that makes the new index visible. That is what replaces a snapshot atomically.
"""

from uuid import UUID

PREFIX = "documents"


def document_prefix(document_id: UUID) -> str:
    return f"{PREFIX}/{document_id}"


def original_key(document_id: UUID) -> str:
    return f"{document_prefix(document_id)}/original"


def edition_of(job_id: int, claim: int) -> str:
    return f"{job_id}-{claim}"


def edition_prefix(document_id: UUID, edition: str) -> str:
    return f"{document_prefix(document_id)}/{edition}"


def snapshot_key(document_id: UUID, edition: str) -> str:
    return f"{edition_prefix(document_id, edition)}/snapshot"


def asset_key(document_id: UUID, edition: str, key: str) -> str:
    return f"{edition_prefix(document_id, edition)}/assets/{key}"
