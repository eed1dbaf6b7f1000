-- Waits for whoever ends its job, or gives it another one.
SELECT status, job_id, edition, filename FROM background_documents
 WHERE id = CAST(%(document_id)s AS uuid) AND deleted_at IS NULL
   FOR UPDATE
