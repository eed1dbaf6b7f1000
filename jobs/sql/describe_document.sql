-- What its ingestion found. After complete in the same transaction, so that both lock the job first and then the document,
-- as the trigger does. No row: another job has the document by now. Rebuilt from a snapshot, it keeps what its parsing found.
UPDATE background_documents
   SET chunks = %(chunks)s, mime_type = %(mime_type)s, title = %(title)s, pages = %(pages)s, parser = %(parser)s,
       assets = coalesce(%(assets)s, assets), edition = %(edition)s
 WHERE id = %(document_id)s AND job_id = %(job_id)s
RETURNING id
