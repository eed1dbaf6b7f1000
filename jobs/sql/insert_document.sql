-- The same content is one document of a collection: of two that submit it at once, the second waits here for the first to
-- commit and then answers nothing. FAILED until it is given its job: whatever stops its submission between the two, and
-- commits, leaves a document that may be submitted again.
INSERT INTO background_documents (id, filename, sha256, size, mime_type, collection, status, message)
VALUES (CAST(%(id)s AS uuid), CAST(%(filename)s AS text), CAST(%(sha256)s AS text), CAST(%(size)s AS bigint),
        CAST(%(mime_type)s AS text), CAST(%(collection)s AS text), 'FAILED', 'Its submission was not completed.')
ON CONFLICT (collection, sha256) WHERE deleted_at IS NULL DO NOTHING
RETURNING id
