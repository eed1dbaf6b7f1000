-- Invariant 7: an unchanged schedule goes on where the last worker stopped, and is not even locked; a changed one starts
-- anew on its own grid.
INSERT INTO background_schedules AS s (name, app, kind, every, cron, timezone, misfire, overlap, grace, next_occurrence)
SELECT %(name)s, %(app)s, %(kind)s, %(every)s, %(cron)s, %(timezone)s, %(misfire)s, %(overlap)s, %(grace)s,
       %(next_occurrence)s
 WHERE NOT EXISTS (SELECT FROM background_schedules AS same
                    WHERE same.name = %(name)s
                      AND (same.app, same.kind, same.every, same.cron, same.timezone, same.misfire, same.overlap,
                           same.grace)
                          IS NOT DISTINCT FROM (%(app)s, %(kind)s, %(every)s::interval, %(cron)s, %(timezone)s,
                                                %(misfire)s, %(overlap)s, %(grace)s))
ON CONFLICT (name) DO UPDATE
   SET app = excluded.app, kind = excluded.kind, every = excluded.every, cron = excluded.cron,
       timezone = excluded.timezone, misfire = excluded.misfire, overlap = excluded.overlap, grace = excluded.grace,
       revision = s.revision + 1,
       next_occurrence = CASE WHEN (s.every, s.cron, s.timezone)
                                   IS NOT DISTINCT FROM (excluded.every, excluded.cron, excluded.timezone)
                              THEN s.next_occurrence ELSE excluded.next_occurrence END
 WHERE (s.app, s.kind, s.every, s.cron, s.timezone, s.misfire, s.overlap, s.grace)
       IS DISTINCT FROM (excluded.app, excluded.kind, excluded.every, excluded.cron, excluded.timezone,
                         excluded.misfire, excluded.overlap, excluded.grace)
RETURNING s.revision
