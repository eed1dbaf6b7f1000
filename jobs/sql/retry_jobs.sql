-- Each of these jobs by the rules of one. What somebody holds is left out: nobody waits here for an open transaction.
WITH held AS MATERIALIZED (
    SELECT job.id FROM background_jobs AS job WHERE job.id = ANY (CAST(%(ids)s AS bigint[])) ORDER BY job.id
       FOR UPDATE SKIP LOCKED
)
SELECT held.id, retried.was, retried.is_changed, retried.copy_id
  FROM held CROSS JOIN LATERAL background_retry_job(held.id) AS retried
