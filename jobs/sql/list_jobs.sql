-- Jobs, newest first, a page at a time by id: `before` is the last id of the page before. The planner folds the filters
-- that are not given. What may be a megabyte each is left out unless `full`. Moments that whoever enqueues may choose are
-- bent to the years that every driver can read: PostgreSQL also knows years before Christ, and infinity.
SELECT id, kind, pool, priority, status, CASE WHEN CAST(%(full)s AS boolean) THEN CAST(payload AS text) END,
       organization_id, attempt, claim, max_attempts, timeout,
       least(greatest(run_after, '0001-01-02Z'), '9999-12-30Z'), dedupe_key, dedupe_active, concurrency_key,
       worker_id, least(greatest(created_at, '0001-01-02Z'), '9999-12-30Z'), started_at, finished_at, progress,
       CASE WHEN CAST(%(full)s AS boolean) THEN CAST(result AS text) END, CAST(error AS text), schedule, occurrence,
       progress_note, blocked, cancel_requested_at,
       EXISTS (SELECT 1 FROM background_kinds AS k WHERE k.kind = background_jobs.kind AND k.paused_at IS NOT NULL)
  FROM background_jobs
 WHERE (CAST(%(id)s AS bigint) IS NULL OR id = CAST(%(id)s AS bigint))
   AND (CAST(%(before)s AS bigint) IS NULL OR id < CAST(%(before)s AS bigint))
   AND (CAST(%(status)s AS text) IS NULL OR status = CAST(%(status)s AS text))
   AND (CAST(%(kind)s AS text) IS NULL OR kind = CAST(%(kind)s AS text))
   AND (CAST(%(pool)s AS text) IS NULL OR pool = CAST(%(pool)s AS text))
   AND (CAST(%(organization_id)s AS text) IS NULL OR organization_id = CAST(%(organization_id)s AS text))
 ORDER BY id DESC LIMIT CAST(%(limit)s AS integer)
