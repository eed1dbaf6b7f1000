-- Invariants 3 (charged once: the claim itself pays), 5 (one at a time per concurrency key) and 6 (a paused kind starts
-- nothing). One batch for one pool, by priority, then run_after, then id. The kind's declaration decides the pool, so
-- a row that names another one still gets the isolation that its work needs. Of each concurrency key at most one job is
-- taken: the best of the batch, if no job of the key runs and no other claim is deciding about the key right now. What
-- stands behind a running job is marked as blocked, so that no later claim looks at it again; the trigger on
-- background_jobs lets the next one go when the running one ends. The first column counts what makes another claim
-- worth while: the parked, and those whose key somebody else took or was deciding about since this statement began.
WITH open AS MATERIALIZED (
    SELECT known.kind FROM unnest(%(kinds)s::text[]) AS known (kind)
     WHERE NOT EXISTS (SELECT 1 FROM background_kinds AS k WHERE k.kind = known.kind AND k.paused_at IS NOT NULL)
       AND EXISTS (SELECT 1 FROM background_workers AS w
                    WHERE w.id = %(worker_id)s::uuid AND w.lost_at IS NULL AND w.lease_until > clock_timestamp())
), candidate AS MATERIALIZED (
    SELECT due.id, due.priority, due.run_after, due.concurrency_key
      FROM open
     CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
     CROSS JOIN LATERAL (
           SELECT job.id, job.priority, job.run_after, job.concurrency_key
             FROM background_jobs AS job
            WHERE job.kind = open.kind AND job.priority = level.priority AND job.status = 'queued'
              AND NOT job.blocked AND job.run_after <= statement_timestamp()
            ORDER BY job.run_after, job.id
            LIMIT %(slots)s
              FOR UPDATE SKIP LOCKED
           ) AS due
     ORDER BY due.priority, due.run_after, due.id
     LIMIT %(slots)s
), placed AS (
    SELECT *, row_number() OVER (PARTITION BY concurrency_key ORDER BY priority, run_after, id) AS place FROM candidate
), decided AS MATERIALIZED (
    SELECT id, concurrency_key,
           CASE WHEN concurrency_key IS NULL THEN 'free'
                WHEN place = 1
                     AND NOT EXISTS (SELECT 1 FROM background_jobs AS busy
                                      WHERE busy.status = 'running' AND busy.concurrency_key = placed.concurrency_key)
                THEN background_hold_key(concurrency_key)
           END AS key
      FROM placed
), free AS MATERIALIZED (
    SELECT id, concurrency_key FROM decided WHERE key = 'free'
), held AS MATERIALIZED (
    -- FOR SHARE: the running job cannot end before the mark below commits, and its end sees the mark.
    SELECT busy.concurrency_key FROM background_jobs AS busy
     WHERE busy.status = 'running'
       AND busy.concurrency_key IN (SELECT concurrency_key FROM placed WHERE concurrency_key IS NOT NULL)
       FOR SHARE SKIP LOCKED
), parked AS (
    UPDATE background_jobs AS job SET blocked = true
      FROM placed
     WHERE job.id = placed.id
       AND placed.id NOT IN (SELECT id FROM free)
       AND (placed.concurrency_key IN (SELECT concurrency_key FROM held)
            OR placed.concurrency_key IN (SELECT concurrency_key FROM free WHERE concurrency_key IS NOT NULL))
    RETURNING job.id
), claimed AS (
    UPDATE background_jobs AS job
       SET status = 'running', pool = %(pool)s, claim = job.claim + 1, attempt = job.attempt + 1, worker_id = %(worker_id)s::uuid,
           started_at = clock_timestamp(), finished_at = NULL, progress = NULL, progress_note = NULL,
           generation = coalesce((SELECT k.generation FROM background_kinds AS k WHERE k.kind = job.kind), 0)
      FROM free
     WHERE job.id = free.id
    RETURNING job.id, job.claim, job.kind, job.pool, job.payload::text, job.attempt, job.max_attempts, job.timeout,
              job.organization_id, job.concurrency_key, job.priority, job.run_after
)
SELECT (SELECT count(*) FROM parked) + (SELECT count(*) FROM decided WHERE key <> 'free'), claimed.id, claimed.claim, claimed.kind, claimed.pool, claimed.payload,
       claimed.attempt, claimed.max_attempts, claimed.timeout, claimed.organization_id, claimed.concurrency_key
  FROM (VALUES (1)) AS always (one) LEFT JOIN claimed ON true
 ORDER BY claimed.priority, claimed.run_after, claimed.id
