-- Alive by the clock of the database, as everywhere: a worker whose lease is over may not know it yet.
SELECT id, host, pid, version, pools, kinds, started_at, lease_until, lost_at,
       lost_at IS NULL AND lease_until > clock_timestamp() AS alive
  FROM background_workers ORDER BY started_at DESC, id LIMIT CAST(%(limit)s AS integer)
