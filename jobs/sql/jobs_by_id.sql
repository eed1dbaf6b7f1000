-- These jobs, newest first. What may be a megabyte each is left out unless `full`. Moments that whoever enqueues may choose
-- are bent to the years that every driver can read: PostgreSQL also knows years before Christ, and infinity.
SELECT id, kind, pool, priority, status, CASE WHEN CAST(%(full)s AS boolean) THEN CAST(payload AS text) END,
       organization_id, attempt, claim, max_attempts, timeout,
       least(greatest(run_after, '0001-01-02Z'), '9999-12-30Z'), dedupe_key, dedupe_active, concurrency_key,
       worker_id, least(greatest(created_at, '0001-01-02Z'), '9999-12-30Z'), started_at, finished_at, progress,
       CASE WHEN CAST(%(full)s AS boolean) THEN CAST(result AS text) END, CAST(error AS text), schedule, occurrence,
       progress_note, blocked, cancel_requested_at,
       EXISTS (SELECT 1 FROM background_kinds AS k WHERE k.kind = background_jobs.kind AND k.paused_at IS NOT NULL)
  FROM background_jobs
 WHERE id = ANY (CAST(%(ids)s AS bigint[]))
 ORDER BY id DESC
