-- Invariant 1 as in enqueue.sql, for a single job without a dedupe key, which is what services enqueue most: there is
-- nothing that it could meet, so nothing is looked for.
INSERT INTO background_jobs (kind, pool, max_attempts, timeout, payload, priority, run_after, organization_id,
                             concurrency_key, trace_context)
VALUES (%(kind)s::text, %(pool)s::text, %(max_attempts)s::integer, %(timeout)s::interval, %(payload)s::text::jsonb,
        %(priority)s::smallint, coalesce(%(run_after)s::timestamptz, now() + %(delay)s::interval, now()),
        %(organization_id)s::text, %(concurrency_key)s::text, %(trace_context)s::text)
RETURNING id
