-- Invariant 4: found expired by the database's clock, a worker is lost for good. Locked first, so that a renewal and
-- this mark exclude each other. The owners' notice commits with it.
WITH lost AS (
    UPDATE background_workers AS worker SET lost_at = clock_timestamp()
     WHERE id IN (SELECT id FROM background_workers
                   WHERE lost_at IS NULL AND lease_until < clock_timestamp()
                   ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED)
       AND lost_at IS NULL AND lease_until < clock_timestamp()
    RETURNING id, host, pid, lease_until,
              (SELECT count(*) FROM background_jobs AS job
                WHERE job.worker_id = worker.id AND job.status = 'running') AS running
), told AS (
    INSERT INTO background_notices (event, severity, subject, body)
    SELECT 'lost-worker:' || id, 'warning',
           concat('a worker on ', left(host, 200), ' is lost with ', running, ' running jobs'),
           concat('Worker ', id, ', pid ', pid, ' on ', left(host, 200), ', has not renewed its lease, which ran out at ',
                  to_char(lease_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'), '. Its process died, stands still, '
                  'or cannot reach the database.', E'\n', 'Its running jobs have lost that attempt; they are tried again, or '
                  'dead if it was their last.')
      FROM lost
    ON CONFLICT (event) DO NOTHING
)
SELECT id, host, pid, running FROM lost
