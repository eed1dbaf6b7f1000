-- Seconds until the next job of these kinds is due; NULL where none waits. One index probe a kind and priority.
SELECT extract(epoch FROM min(waiting.run_after) - clock_timestamp())::float8
  FROM unnest(%(kinds)s::text[]) AS known (kind)
 CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
 CROSS JOIN LATERAL (
       SELECT job.run_after FROM background_jobs AS job
        WHERE job.kind = known.kind AND job.priority = level.priority AND job.status = 'queued' AND NOT job.blocked
          AND job.run_after > statement_timestamp() AND job.run_after < 'infinity'
        ORDER BY job.run_after LIMIT 1
       ) AS waiting
