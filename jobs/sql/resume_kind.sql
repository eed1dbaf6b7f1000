-- The generation grows: outcomes of attempts that started before change nothing any more.
UPDATE background_kinds AS k
   SET kill_streak = 0, generation = k.generation + 1, probe = %(probe)s, probe_job_id = NULL,
       paused_at = CASE WHEN %(probe)s THEN k.paused_at END,
       paused_by = CASE WHEN %(probe)s THEN k.paused_by END,
       pause_reason = CASE WHEN %(probe)s THEN k.pause_reason END
  FROM (SELECT kind, pause_reason FROM background_kinds
         WHERE kind = %(kind)s AND paused_at IS NOT NULL FOR UPDATE) AS before
 WHERE k.kind = before.kind
RETURNING before.pause_reason, pg_notify('background_control', 'kinds')::text
