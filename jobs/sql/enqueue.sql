-- Invariant 1, nothing is lost, and 5, one queued copy per dedupe key: the rows exist exactly when the caller's
-- transaction commits; a row whose dedupe key is taken is left out and answers NULL at its position.
WITH wanted AS MATERIALIZED (
    SELECT nextval((SELECT pg_get_serial_sequence('background_jobs', 'id')::regclass)) AS id, given.* -- looked up once
      FROM ROWS FROM (
               json_array_elements(%(payload)s::text::json), -- an array of texts with quotes costs a driver far more
               unnest(%(priority)s::smallint[], %(run_after)s::timestamptz[], %(delay)s::interval[],
                      %(organization_id)s::text[], %(dedupe_key)s::text[], %(dedupe_active)s::boolean[],
                      %(concurrency_key)s::text[])
           ) WITH ORDINALITY
           AS given (payload, priority, run_after, delay, organization_id, dedupe_key, dedupe_active, concurrency_key,
                     position)
), written AS (
    INSERT INTO background_jobs (id, kind, pool, max_attempts, timeout, payload, priority, run_after,
                                 organization_id, dedupe_key, dedupe_active, concurrency_key, trace_context)
    SELECT w.id, %(kind)s::text, %(pool)s::text, %(max_attempts)s::integer, %(timeout)s::interval,
           w.payload::text::jsonb, w.priority, coalesce(w.run_after, now() + w.delay, now()), w.organization_id,
           w.dedupe_key, w.dedupe_active, w.concurrency_key, %(trace_context)s::text
      FROM wanted AS w
     WHERE NOT (w.dedupe_active AND EXISTS (
               SELECT 1 FROM background_jobs AS active
                WHERE active.kind = %(kind)s::text AND active.dedupe_key = w.dedupe_key
                  AND active.status IN ('queued', 'running')))
     ORDER BY w.dedupe_key, w.position -- two services with the same keys wait for each other in one direction only
    ON CONFLICT DO NOTHING
    RETURNING id
)
SELECT written.id FROM wanted LEFT JOIN written USING (id) ORDER BY wanted.position
