-- Without a lock: whoever is told that a job runs need not wait for the transaction in which that ends.
SELECT document.status, job.id, job.status
  FROM background_documents AS document LEFT JOIN background_jobs AS job ON job.id = document.job_id
 WHERE document.id = CAST(%(document_id)s AS uuid) AND document.deleted_at IS NULL
