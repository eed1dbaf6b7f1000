-- Invariant 6: `resume --probe` lets exactly one job of a paused kind through. The kind's row is locked first, so two
-- workers cannot both send a probe. It counts for the bound of its organization, and waits for that, as any other job does.
WITH asked AS MATERIALIZED (
    SELECT k.kind, k.max_per_organization AS most FROM background_kinds AS k
     WHERE k.paused_at IS NOT NULL AND k.probe AND k.probe_job_id IS NULL AND k.kind = ANY (%(kinds)s::text[])
       AND EXISTS (SELECT 1 FROM background_workers AS w
                    WHERE w.id = %(worker_id)s::uuid AND w.lost_at IS NULL AND w.lease_until > clock_timestamp())
       FOR UPDATE SKIP LOCKED
), candidate AS MATERIALIZED (
    SELECT due.*, asked.most FROM asked
     CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
     CROSS JOIN (VALUES (true), (false)) AS side (is_nobodys)
     CROSS JOIN LATERAL (
           SELECT job.id, job.kind, job.priority, job.run_after, job.concurrency_key, job.organization_id
             FROM background_jobs AS job
            WHERE job.kind = asked.kind AND job.priority = level.priority
              AND (job.organization_id IS NULL) = side.is_nobodys AND job.status = 'queued' AND NOT job.blocked
              AND job.run_after <= statement_timestamp()
              AND NOT EXISTS (SELECT 1 FROM background_jobs AS busy
                               WHERE busy.status = 'running' AND busy.concurrency_key = job.concurrency_key)
            ORDER BY job.run_after, job.id LIMIT 10 -- keys and lines are held for all of them
              FOR UPDATE OF job SKIP LOCKED
           ) AS due
), chosen AS MATERIALIZED (
    SELECT id, kind, organization_id IS NOT NULL AND most IS NOT NULL AS limited FROM candidate
     WHERE (organization_id IS NULL OR most IS NULL OR background_hold_line(kind, organization_id, most) > 0)
       AND (concurrency_key IS NULL OR background_hold_key(concurrency_key) = 'free')
     ORDER BY priority, run_after, id LIMIT 1
), marked AS (
    UPDATE background_kinds AS k SET probe_job_id = chosen.id FROM chosen WHERE k.kind = chosen.kind
    RETURNING k.generation
)
UPDATE background_jobs AS job
   SET status = 'running', pool = %(pool)s, claim = job.claim + 1, attempt = job.attempt + 1, worker_id = %(worker_id)s::uuid,
       started_at = clock_timestamp(), finished_at = NULL, progress = NULL, progress_note = NULL,
       generation = marked.generation, limited = chosen.limited
  FROM chosen, marked
 WHERE job.id = chosen.id
RETURNING 0, job.id, job.claim, job.kind, job.pool, job.payload::text, job.attempt, job.max_attempts, job.timeout,
          job.organization_id, job.concurrency_key, job.priority, date_part('epoch', job.run_after)
