-- Who did what, newest first, a page at a time by id: see background_find_audit in jobs/migrations.
SELECT id, at, actor, action, target, reason, CAST(detail AS text)
  FROM background_find_audit(CAST(%(filter)s AS text)::jsonb, CAST(%(before)s AS bigint), CAST(%(limit)s AS integer))
 ORDER BY id DESC
