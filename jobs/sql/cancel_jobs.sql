-- Each of these jobs by the rules of one. What somebody holds is left out: nobody waits here for an open transaction.
WITH held AS MATERIALIZED (
    SELECT job.id FROM background_jobs AS job WHERE job.id = ANY (CAST(%(ids)s AS bigint[])) ORDER BY job.id
       FOR UPDATE SKIP LOCKED
)
SELECT held.id, cancelled.was, cancelled.becomes
  FROM held CROSS JOIN LATERAL background_cancel_job(held.id, CAST(%(error)s AS text)::jsonb) AS cancelled
