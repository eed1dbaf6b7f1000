-- What its parsing found. After complete in the same transaction, so that both lock the job first and then the document,
-- as the trigger does. No row: another job has the document by now.
UPDATE background_documents
   SET mime_type = %(mime_type)s, title = %(title)s, pages = %(pages)s, chunks = %(chunks)s
 WHERE id = %(document_id)s AND job_id = %(job_id)s
RETURNING id
