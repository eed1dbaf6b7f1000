-- From here on the document follows this job, and no longer the one that failed.
UPDATE background_documents
   SET job_id = CAST(%(job_id)s AS bigint), status = 'PENDING', message = NULL, ready_at = NULL
 WHERE id = CAST(%(document_id)s AS uuid)
RETURNING id
