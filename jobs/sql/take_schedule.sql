-- Invariant 7: whoever holds the row fires the occurrence; the others skip it.
SELECT name, every, cron, timezone, misfire, overlap, grace, next_occurrence, clock_timestamp(),
       EXISTS (SELECT 1 FROM background_jobs AS job
                WHERE job.schedule = s.name AND job.status IN ('queued', 'running'))
  FROM background_schedules AS s
 WHERE name = %(name)s AND next_occurrence <= clock_timestamp()
   FOR UPDATE SKIP LOCKED
