-- Takes or keeps the walk of retention for a while; no row where another worker has it. The advisory lock makes way for a
-- step of somebody whose time ran out in the middle of it.
INSERT INTO background_retention AS walk (worker_id, held_until)
SELECT %(worker_id)s::uuid, clock_timestamp() + %(hold)s::interval
 WHERE pg_try_advisory_xact_lock(hashtextextended('background_retention', 0))
ON CONFLICT (one) DO UPDATE SET worker_id = excluded.worker_id, held_until = excluded.held_until
 WHERE walk.worker_id = excluded.worker_id OR walk.held_until < clock_timestamp()
RETURNING walk.position, walk.lowest, walk.start, walk.whole_at < clock_timestamp() - interval '1 day'
