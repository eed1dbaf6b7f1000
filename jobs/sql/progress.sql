-- Invariant 2: progress from a lost claim changes nothing. Answers the claims that were still ours.
UPDATE background_jobs AS job SET progress = given.fraction, progress_note = given.note
  FROM unnest(%(ids)s::bigint[], %(claims)s::bigint[], %(fractions)s::real[], %(notes)s::text[])
       AS given (id, claim, fraction, note)
 WHERE job.id = given.id AND job.claim = given.claim AND job.status = 'running'
RETURNING job.id, job.claim
