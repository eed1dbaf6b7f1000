-- Invariant 2: a stage is written by the claim that runs, and by no other. The job is locked first, as by everybody who
-- changes both, and for as long as this takes: it cannot end in between, and a status of the document outlive it.
WITH ours AS MATERIALIZED (
    SELECT id FROM background_jobs WHERE id = %(job_id)s AND claim = %(claim)s AND status = 'running' FOR SHARE
)
UPDATE background_documents AS document SET status = %(stage)s, message = NULL
  FROM ours
 WHERE document.id = %(document_id)s AND document.job_id = ours.id AND document.deleted_at IS NULL
RETURNING document.id
