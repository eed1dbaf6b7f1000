-- What of a document's objects is its own: the edition that its row names, and that of an attempt which runs now. Only a
-- running attempt writes objects, so one that was seen before this was asked, and is not named here, is nobody's.
SELECT document.deleted_at IS NOT NULL, document.edition, job.id || '-' || job.claim
  FROM background_documents AS document
  LEFT JOIN background_jobs AS job ON job.id = document.job_id AND job.status = 'running'
 WHERE document.id = CAST(%(document_id)s AS uuid)
