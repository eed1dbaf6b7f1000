-- Invariant 7: whoever holds the row fires, a tick or an operator. With what its kind's declaration says of a job.
SELECT s.kind, s.overlap, k.pool, k.priority, k.max_attempts, k.timeout, clock_timestamp()
  FROM background_schedules AS s LEFT JOIN background_kinds AS k ON k.kind = s.kind
 WHERE s.name = CAST(%(name)s AS text)
   FOR UPDATE OF s
