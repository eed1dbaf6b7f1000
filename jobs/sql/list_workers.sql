-- Alive by the clock of the database, as everywhere: a worker whose lease is over may not know it yet. What it said of itself
-- holds for as long as it is alive.
SELECT w.id, w.host, w.pid, w.version, w.pools, w.kinds, w.started_at, w.lease_until, w.lost_at,
       w.lost_at IS NULL AND w.lease_until > clock_timestamp() AS alive,
       s.at, s.memory_mb, s.children, s.children_mb, s.largest_child_mb, s.template_up, CAST(s.slots AS text)
  FROM background_workers AS w
  LEFT JOIN background_worker_states AS s ON s.worker_id = w.id
 ORDER BY w.started_at DESC, w.id LIMIT CAST(%(limit)s AS integer)
