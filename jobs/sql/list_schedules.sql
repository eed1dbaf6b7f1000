SELECT name, kind, every, misfire, overlap, grace, next_occurrence, last_occurrence, revision, app, cron, timezone
  FROM background_schedules ORDER BY name LIMIT CAST(%(limit)s AS integer)
