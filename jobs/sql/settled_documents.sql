-- A page of those on which nothing works, for who walks over all of them.
SELECT id FROM background_documents
 WHERE deleted_at IS NULL AND status IN ('READY', 'FAILED') AND id > CAST(%(after)s AS uuid)
   AND (CAST(%(collection)s AS text) IS NULL OR collection = CAST(%(collection)s AS text))
 ORDER BY id
 LIMIT CAST(%(limit)s AS integer)
