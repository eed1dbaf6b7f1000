-- Invariant 2, one owner: a success counts only for the claim that ran it. Rows that answer nothing were lost.
WITH outcome AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(claims)s::bigint[], %(results)s::text[]) AS given (id, claim, result)
)
UPDATE background_jobs AS job
   SET status = 'succeeded', finished_at = clock_timestamp(), result = outcome.result::jsonb,
       progress = NULL, progress_note = NULL, error = NULL
  FROM outcome
 WHERE job.id = outcome.id AND job.claim = outcome.claim AND job.status = 'running'
RETURNING job.id, job.claim, job.kind, job.generation
