-- Invariant 6: the pause commits together with the outcome that caused it.
UPDATE background_kinds
   SET kill_streak = %(kill_streak)s, probe = %(probe)s, probe_job_id = %(probe_job_id)s,
       paused_at = CASE WHEN %(paused)s THEN coalesce(paused_at, clock_timestamp()) END,
       paused_by = CASE WHEN %(paused)s THEN coalesce(paused_by, %(actor)s) END,
       pause_reason = CASE WHEN %(paused)s THEN coalesce(%(reason)s, pause_reason) END
 WHERE kind = %(kind)s
