-- Invariant 6: the pause commits together with the outcome that caused it.
UPDATE background_kinds
   SET kill_streak = %(kill_streak)s, probe = %(probe)s, probe_job_id = %(probe_job_id)s,
       paused_at = CASE WHEN %(paused)s THEN coalesce(paused_at, clock_timestamp()) END,
       paused_by = CASE WHEN %(paused)s THEN coalesce(paused_by, %(actor)s) END,
       pause_reason = CASE WHEN NOT %(paused)s THEN NULL
                           WHEN %(probe_died)s::text IS NULL THEN coalesce(%(reason)s, pause_reason)
                           -- Before what stood there: a list shows the first line. Bounded, for probes may die often.
                           ELSE left(concat_ws(E'\n', %(probe_died)s::text, pause_reason), 20000) END
 WHERE kind = %(kind)s
