-- With copy_chunks in one transaction: a retry leaves exactly one set of chunks. Their vectors of every model go with them.
WITH cleared AS (DELETE FROM background_document_chunks WHERE document_id = CAST(%(document_id)s AS uuid) RETURNING id)
SELECT count(*) FROM cleared
