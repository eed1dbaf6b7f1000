INSERT INTO background_kinds AS k (kind, paused_at, paused_by, pause_reason)
VALUES (%(kind)s, clock_timestamp(), %(actor)s, %(reason)s)
ON CONFLICT (kind) DO UPDATE
   SET paused_at = coalesce(k.paused_at, excluded.paused_at),
       paused_by = coalesce(k.paused_by, excluded.paused_by),
       pause_reason = CASE WHEN k.paused_at IS NULL THEN excluded.pause_reason ELSE k.pause_reason END,
       probe = false, probe_job_id = NULL -- a probe that is on its way decides nothing any more
RETURNING kind, pg_notify('background_control', 'kinds')::text
