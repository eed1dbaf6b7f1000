-- Invariant 1: running jobs whose worker is lost or gone, a bounded batch, skipping what somebody else is settling and
-- what this pass could not settle.
SELECT job.id, job.claim, job.kind, job.attempt, job.worker_id,
       (SELECT w.host FROM background_workers AS w WHERE w.id = job.worker_id)
  FROM background_jobs AS job
 WHERE job.status = 'running' AND job.id <> ALL (%(passed_over)s::bigint[])
   AND NOT EXISTS (SELECT 1 FROM background_workers AS w WHERE w.id = job.worker_id AND w.lost_at IS NULL)
 ORDER BY job.kind, job.id
 LIMIT %(limit)s
   FOR UPDATE OF job SKIP LOCKED
