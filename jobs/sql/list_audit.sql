-- Who did what, newest first, a page at a time by id.
SELECT id, at, actor, action, target, reason, CAST(detail AS text)
  FROM background_audit WHERE CAST(%(before)s AS bigint) IS NULL OR id < CAST(%(before)s AS bigint)
 ORDER BY id DESC LIMIT CAST(%(limit)s AS integer)
