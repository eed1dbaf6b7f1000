-- A due job whose kind no live worker knows is dead at once: nothing here can run it, and waiting in silence would hide
-- that. Walks the queued kinds one by one through the claim index, and looks at jobs of the unknown ones alone. Workers
-- publish what they know.
WITH RECURSIVE queued_kind AS (
    (SELECT kind::text AS kind FROM background_jobs WHERE status = 'queued' AND NOT blocked ORDER BY kind LIMIT 1)
    UNION ALL
    SELECT (SELECT job.kind::text FROM background_jobs AS job
             WHERE job.status = 'queued' AND NOT job.blocked AND job.kind > queued_kind.kind
             ORDER BY job.kind LIMIT 1)
      FROM queued_kind WHERE queued_kind.kind IS NOT NULL
), live AS MATERIALIZED (
    SELECT kinds FROM background_workers WHERE lost_at IS NULL AND lease_until > clock_timestamp()
), unknown AS MATERIALIZED (
    SELECT kind FROM queued_kind
     WHERE kind IS NOT NULL AND NOT EXISTS (SELECT 1 FROM live WHERE queued_kind.kind = ANY (live.kinds))
), victim AS MATERIALIZED (
    SELECT due.id FROM unknown
     CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
     CROSS JOIN (VALUES (true), (false)) AS side (is_nobodys)
     CROSS JOIN LATERAL (
           SELECT job.id FROM background_jobs AS job
            WHERE job.kind = unknown.kind AND job.priority = level.priority
              AND (job.organization_id IS NULL) = side.is_nobodys AND job.status = 'queued'
              AND NOT job.blocked AND job.run_after <= statement_timestamp() - %(grace)s::interval
            ORDER BY job.run_after, job.id LIMIT %(limit)s
              FOR UPDATE SKIP LOCKED
           ) AS due
     LIMIT %(limit)s
)
UPDATE background_jobs AS job
   SET status = 'dead', finished_at = clock_timestamp(),
       error = jsonb_build_object('type', 'UnknownKind', 'frames', '',
                                  'message', 'no live worker knows the kind ' || job.kind || ': start one whose app has '
                                  'a handler for it, or start those anew that run since before it had one, or enqueue '
                                  'by its right name; then retry this job. While workers are only being restarted, '
                                  'WORKER_UNKNOWN_KIND_GRACE_SECONDS lets such jobs wait')
  FROM victim
 WHERE job.id = victim.id AND EXISTS (SELECT 1 FROM live)
RETURNING job.id, job.kind::text
