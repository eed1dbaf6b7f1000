-- Its content may be submitted anew from here on; the row stays until its objects are gone, and names them.
UPDATE background_documents
   SET deleted_at = clock_timestamp(), status = 'FAILED', message = 'It is being deleted.', ready_at = NULL, job_id = NULL
 WHERE id = CAST(%(document_id)s AS uuid) AND deleted_at IS NULL
RETURNING id
