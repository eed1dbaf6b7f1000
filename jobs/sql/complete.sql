-- Invariant 2, one owner: a success counts only for the claim that ran it. Rows that answer nothing were lost. Locked in
-- the order of their ids, as every statement does that changes many running jobs: two of them never wait in a circle.
WITH outcome AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(claims)s::bigint[], %(results)s::text[]) AS given (id, claim, result)
), ours AS MATERIALIZED (
    SELECT job.id, outcome.result FROM background_jobs AS job JOIN outcome USING (id, claim)
     WHERE job.status = 'running'
     ORDER BY job.id
       FOR NO KEY UPDATE OF job
)
UPDATE background_jobs AS job
   SET status = 'succeeded', finished_at = clock_timestamp(), result = ours.result::jsonb,
       progress = NULL, progress_note = NULL, error = NULL
  FROM ours
 WHERE job.id = ours.id
RETURNING job.id, job.claim, job.kind, job.generation
