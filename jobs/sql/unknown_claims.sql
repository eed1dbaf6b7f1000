-- Invariant 1: jobs that a claim of this worker took although its answer never arrived. The worker, alive and renewing
-- its lease, would hold them for ever.
SELECT id, claim FROM background_jobs
 WHERE worker_id = %(worker_id)s::uuid AND status = 'running'
   AND (id, claim) NOT IN (SELECT * FROM unnest(%(ids)s::bigint[], %(claims)s::bigint[]))
