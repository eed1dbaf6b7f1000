-- Waits for whoever ends its job, so that two submitters of a FAILED document make one job.
SELECT id, status, job_id FROM background_documents
 WHERE collection = CAST(%(collection)s AS text) AND sha256 = CAST(%(sha256)s AS text) AND deleted_at IS NULL
   FOR UPDATE
