-- Invariant 7: the unique index on (schedule, occurrence) is the backstop; a second firing writes nothing.
INSERT INTO background_jobs (kind, pool, priority, max_attempts, timeout, payload, schedule, occurrence,
                             concurrency_key)
VALUES (%(kind)s, %(pool)s, %(priority)s, %(max_attempts)s, %(timeout)s, %(payload)s::jsonb, %(name)s,
        %(occurrence)s, %(concurrency_key)s)
ON CONFLICT DO NOTHING
RETURNING id
