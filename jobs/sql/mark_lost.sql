-- Invariant 4: found expired by the database's clock, a worker is lost for good. Locked first, so that a renewal and
-- this mark exclude each other.
UPDATE background_workers SET lost_at = clock_timestamp()
 WHERE id IN (SELECT id FROM background_workers
               WHERE lost_at IS NULL AND lease_until < clock_timestamp()
               ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED)
   AND lost_at IS NULL AND lease_until < clock_timestamp()
RETURNING id, host, pid, (SELECT count(*) FROM background_jobs AS job
                           WHERE job.worker_id = background_workers.id AND job.status = 'running')
