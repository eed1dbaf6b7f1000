-- Invariants 1 and 5 as in enqueue.sql, for a single job with a dedupe key: the arrays, the CTEs and the join there cost
-- the database three times what this does. Answers no row where the key is taken.
INSERT INTO background_jobs (kind, pool, max_attempts, timeout, payload, priority, run_after,
                             organization_id, dedupe_key, dedupe_active, concurrency_key, trace_context)
SELECT %(kind)s::text, %(pool)s::text, %(max_attempts)s::integer, %(timeout)s::interval, %(payload)s::text::jsonb,
       %(priority)s::smallint, coalesce(%(run_after)s::timestamptz, now() + %(delay)s::interval, now()),
       %(organization_id)s::text, %(dedupe_key)s::text, %(dedupe_active)s::boolean, %(concurrency_key)s::text,
       %(trace_context)s::text
 WHERE NOT (%(dedupe_active)s::boolean AND EXISTS (
           SELECT 1 FROM background_jobs AS active
            WHERE active.kind = %(kind)s::text AND active.dedupe_key = %(dedupe_key)s::text
              AND active.status IN ('queued', 'running')))
ON CONFLICT DO NOTHING
RETURNING id
