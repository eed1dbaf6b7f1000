-- Invariant 4: a lease that ran out cannot be renewed. No row means that it is lost.
UPDATE background_workers SET lease_until = clock_timestamp() + %(lease)s::interval
 WHERE id = %(worker_id)s::uuid AND lost_at IS NULL AND lease_until > clock_timestamp()
RETURNING id
