-- Of a document on which nothing works: what it is, and from here on nothing else can begin. After await_document.
SELECT status, edition, filename FROM background_documents
 WHERE id = CAST(%(document_id)s AS uuid) AND deleted_at IS NULL AND status IN ('READY', 'FAILED')
   FOR UPDATE
