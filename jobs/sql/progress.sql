-- Invariant 2: progress from a lost claim changes nothing. Answers the claims that were still ours. Locked in the order
-- of their ids, as `complete` does.
WITH given AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(claims)s::bigint[], %(fractions)s::real[], %(notes)s::text[])
               AS given (id, claim, fraction, note)
), ours AS MATERIALIZED (
    SELECT job.id, given.fraction, given.note FROM background_jobs AS job JOIN given USING (id, claim)
     WHERE job.status = 'running'
     ORDER BY job.id
       FOR NO KEY UPDATE OF job
)
UPDATE background_jobs AS job SET progress = ours.fraction, progress_note = ours.note
  FROM ours
 WHERE job.id = ours.id
RETURNING job.id, job.claim
