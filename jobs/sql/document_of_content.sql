-- Without a lock: whoever submits may keep the transaction open for long, and every change of the document's job passes
-- its row.
SELECT id, status, job_id FROM background_documents
 WHERE collection = CAST(%(collection)s AS text) AND sha256 = CAST(%(sha256)s AS text) AND deleted_at IS NULL
