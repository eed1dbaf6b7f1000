-- From here on the document follows this job, and no longer the one that ended. An index that it has goes on serving. The
-- name tells the type of some files, so one that failed under a wrong name may succeed under this one.
UPDATE background_documents
   SET job_id = CAST(%(job_id)s AS bigint), filename = CAST(%(filename)s AS text), status = 'PENDING', message = NULL
 WHERE id = CAST(%(document_id)s AS uuid)
RETURNING id
