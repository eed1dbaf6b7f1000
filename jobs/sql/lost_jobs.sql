-- Invariant 1: running jobs whose worker is lost or gone, a bounded batch, skipping what somebody else is settling.
SELECT job.id, job.claim, job.kind, job.worker_id, job.attempt,
       (SELECT w.host FROM background_workers AS w WHERE w.id = job.worker_id),
       EXISTS (SELECT 1 FROM background_attempts AS kill
                WHERE kill.is_kill AND kill.kind = job.kind AND kill.worker_id = job.worker_id
                  AND kill.verdict = 'worker_lost')
  FROM background_jobs AS job
 WHERE job.status = 'running'
   AND NOT EXISTS (SELECT 1 FROM background_workers AS w WHERE w.id = job.worker_id AND w.lost_at IS NULL)
 ORDER BY job.kind, job.id
 LIMIT %(limit)s
   FOR UPDATE OF job SKIP LOCKED
