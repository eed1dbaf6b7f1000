SELECT document.id, document.collection, document.filename, document.status, document.mime_type, document.title,
       document.size, document.pages, document.chunks, document.assets, document.parser, document.job_id,
       document.message, document.created_at, document.ready_at, job.progress, job.progress_note
  FROM background_documents AS document LEFT JOIN background_jobs AS job ON job.id = document.job_id
 WHERE document.id = ANY (CAST(%(ids)s AS uuid[])) AND document.deleted_at IS NULL
 ORDER BY document.created_at, document.id
