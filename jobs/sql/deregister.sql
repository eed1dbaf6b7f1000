-- A worker that left in order needs no rescue. Not while it still has running jobs: the row is what rescues them. Since when
-- it knows its kinds no more is kept: see bury_unknown.sql. In the order of their names, as others that leave lock them.
WITH gone AS (
    DELETE FROM background_workers
     WHERE id = %(worker_id)s::uuid
       AND NOT EXISTS (SELECT 1 FROM background_jobs WHERE worker_id = %(worker_id)s::uuid AND status = 'running')
    RETURNING kinds
)
INSERT INTO background_departures AS known (kind, at)
SELECT DISTINCT kind, clock_timestamp() FROM gone CROSS JOIN unnest(gone.kinds) AS kind ORDER BY kind
ON CONFLICT (kind) DO UPDATE SET at = greatest(known.at, excluded.at)
