-- The job first and then the document, as the trigger does that keeps both in step.
SELECT job.id, job.status
  FROM background_jobs AS job JOIN background_documents AS document ON document.job_id = job.id
 WHERE document.id = CAST(%(document_id)s AS uuid)
   FOR UPDATE OF job
