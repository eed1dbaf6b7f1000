-- What waits in the queue, by kind, for metrics: bounded counts and the oldest, never a count over the table. Of each kind
-- and priority the index of claims is read up to the limit, once for what is due and once for what is scheduled; of what
-- is blocked, the limit is for all kinds together. Ages come as seconds, because infinity has no difference with a moment.
WITH known AS MATERIALIZED (
    SELECT k.kind, coalesce(k.pool, '') AS pool, k.paused_at IS NOT NULL AS paused, k.kill_streak,
           count(*) OVER () AS kinds
      FROM background_kinds AS k ORDER BY k.kind LIMIT %(kinds)s::integer
), blocked AS MATERIALIZED (
    SELECT entry.kind, count(*) AS jobs
      FROM (SELECT job.kind::text AS kind FROM background_jobs AS job
             WHERE job.status = 'queued' AND job.blocked LIMIT %(limit)s::integer) AS entry
     GROUP BY entry.kind
)
SELECT known.kind, known.pool, known.paused, known.kill_streak, known.kinds, date_part('epoch', clock_timestamp()),
       queue.due::bigint, queue.scheduled::bigint, coalesce(blocked.jobs, 0),
       date_part('epoch', statement_timestamp()) - date_part('epoch', queue.oldest)
  FROM known
  LEFT JOIN blocked ON blocked.kind = known.kind
 CROSS JOIN LATERAL (
       SELECT least(sum(due.jobs), %(limit)s::integer) AS due, min(due.oldest) AS oldest,
              least(sum(scheduled.jobs), %(limit)s::integer) AS scheduled
         FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
        CROSS JOIN (VALUES (true), (false)) AS side (is_nobodys)
        CROSS JOIN LATERAL (
              SELECT count(*) AS jobs, min(entry.run_after) AS oldest
                FROM (SELECT job.run_after FROM background_jobs AS job
                       WHERE job.kind = known.kind AND job.priority = level.priority
                         AND (job.organization_id IS NULL) = side.is_nobodys AND job.status = 'queued'
                         AND NOT job.blocked AND job.run_after <= statement_timestamp()
                       ORDER BY job.run_after, job.id LIMIT %(limit)s::integer) AS entry
              ) AS due
        CROSS JOIN LATERAL (
              SELECT count(*) AS jobs
                FROM (SELECT FROM background_jobs AS job
                       WHERE job.kind = known.kind AND job.priority = level.priority
                         AND (job.organization_id IS NULL) = side.is_nobodys AND job.status = 'queued'
                         AND NOT job.blocked AND job.run_after > statement_timestamp()
                       ORDER BY job.run_after, job.id LIMIT %(limit)s::integer) AS entry
              ) AS scheduled
       ) AS queue
 ORDER BY known.kind
