-- The kinds that any worker has declared or anyone has paused; the paused ones first.
SELECT kind, pool, kill_streak, generation, paused_at, paused_by, pause_reason, probe, probe_job_id, priority,
       max_attempts, timeout, important, max_per_organization, keep_succeeded, keep_dead, keep_cancelled
  FROM background_kinds WHERE CAST(%(kind)s AS text) IS NULL OR kind = CAST(%(kind)s AS text)
 ORDER BY paused_at IS NULL, kind LIMIT CAST(%(limit)s AS integer)
