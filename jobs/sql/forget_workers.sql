-- Lost workers stay a day for people to look at, then go; never while a job still names one. When their kinds were known for
-- the last time stays: see bury_unknown.sql.
WITH gone AS (
    DELETE FROM background_workers AS w
     WHERE w.lost_at < clock_timestamp() - interval '1 day'
       AND NOT EXISTS (SELECT 1 FROM background_jobs AS job WHERE job.worker_id = w.id AND job.status = 'running')
    RETURNING kinds, lost_at
)
INSERT INTO background_departures AS known (kind, at)
SELECT kind, max(lost_at) FROM gone CROSS JOIN unnest(gone.kinds) AS kind GROUP BY kind ORDER BY kind
ON CONFLICT (kind) DO UPDATE SET at = greatest(known.at, excluded.at)
