-- The same content is one document: of two that submit it at once, the second waits here for the first to commit and
-- then answers nothing.
INSERT INTO background_documents (filename, sha256, size)
VALUES (CAST(%(filename)s AS text), CAST(%(sha256)s AS text), CAST(%(size)s AS bigint))
ON CONFLICT ON CONSTRAINT background_documents_sha256 DO NOTHING
RETURNING id
