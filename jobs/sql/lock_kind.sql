-- The kind's health, locked: streaks grow in commit order over all hosts.
SELECT kill_streak, generation, paused_at IS NOT NULL, probe, probe_job_id
  FROM background_kinds WHERE kind = %(kind)s FOR UPDATE
