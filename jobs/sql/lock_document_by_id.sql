-- Waits for whoever ends its job: READY and FAILED then mean that nothing works on it any more.
SELECT status, job_id, edition, filename FROM background_documents
 WHERE id = CAST(%(document_id)s AS uuid) AND deleted_at IS NULL
   FOR UPDATE
