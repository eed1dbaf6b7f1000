-- Invariant 2: progress from a lost claim changes nothing. Answers the claims that it wrote. It waits for nobody: a handler
-- may hold its own row for as long as its `complete_in` takes, and the others' progress goes on. Whatever the fraction,
-- it fits: one value that does not would refuse them all.
WITH given AS (
    SELECT id, claim, round(least(greatest(fraction, 0), 1)::numeric, 6)::real AS fraction, note
      FROM unnest(%(ids)s::bigint[], %(claims)s::bigint[], %(fractions)s::float8[], %(notes)s::text[])
           AS told (id, claim, fraction, note)
), ours AS MATERIALIZED (
    SELECT job.id, given.fraction, given.note FROM background_jobs AS job JOIN given USING (id, claim)
     WHERE job.status = 'running'
     ORDER BY job.id
       FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE background_jobs AS job SET progress = ours.fraction, progress_note = ours.note
  FROM ours
 WHERE job.id = ours.id
RETURNING job.id, job.claim
