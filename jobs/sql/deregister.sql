-- A worker that left in order needs no rescue. Not while it still has running jobs: the row is what rescues them.
DELETE FROM background_workers
 WHERE id = %(worker_id)s::uuid
   AND NOT EXISTS (SELECT 1 FROM background_jobs WHERE worker_id = %(worker_id)s::uuid AND status = 'running')
