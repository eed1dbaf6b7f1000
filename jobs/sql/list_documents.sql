-- Newest first; `before` is the id of the last row of the page before.
SELECT document.id, document.collection, document.filename, document.status, document.mime_type, document.title,
       document.size, document.pages, document.chunks, document.assets, document.parser, document.job_id,
       document.message, document.created_at, document.ready_at, job.progress, job.progress_note
  FROM background_documents AS document LEFT JOIN background_jobs AS job ON job.id = document.job_id
 WHERE document.deleted_at IS NULL
   AND (CAST(%(status)s AS text) IS NULL OR document.status = CAST(%(status)s AS text))
   AND (CAST(%(collection)s AS text) IS NULL OR document.collection = CAST(%(collection)s AS text))
   AND (CAST(%(before)s AS uuid) IS NULL OR (document.created_at, document.id) < (
           SELECT last.created_at, last.id FROM background_documents AS last WHERE last.id = CAST(%(before)s AS uuid)))
 ORDER BY document.created_at DESC, document.id DESC
 LIMIT CAST(%(limit)s AS integer)
