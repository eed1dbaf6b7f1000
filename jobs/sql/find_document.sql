-- What a job needs to know of the document that its payload names.
SELECT filename, sha256, size, job_id, edition FROM background_documents
 WHERE id = CAST(%(document_id)s AS uuid) AND deleted_at IS NULL
