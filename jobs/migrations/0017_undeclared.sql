-- Kinds of which there are jobs and that stand in no row of background_kinds, such as a misspelt one: no look at the kinds
-- shows them. The kinds of what is queued, and of what is dead, are walked one by one through their indexes, past those that
-- are declared, until there are `max_kinds`. Counts end at `count_limit`, the smaller the more kinds there are; a count that
-- reaches it means: or more.
CREATE FUNCTION background_undeclared(max_kinds integer, at_most integer) RETURNS TABLE (
    kind text, pool text, count_limit integer, due bigint, scheduled bigint, dead bigint, oldest_age double precision
) LANGUAGE sql STABLE SET search_path FROM CURRENT
  -- By its indexes whatever the statistics say, and by nothing that reads all before it answers: a walk ends early.
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
  SET enable_mergejoin = off SET max_parallel_workers_per_gather = 0 SET jit = off
  SET seq_page_cost = 0 SET random_page_cost = 0 AS $$
    WITH RECURSIVE queued_kind AS (
        (SELECT job.kind::text AS kind FROM background_jobs AS job
          WHERE job.status = 'queued' AND NOT job.blocked ORDER BY job.kind LIMIT 1)
        UNION ALL
        SELECT (SELECT job.kind::text FROM background_jobs AS job
                 WHERE job.status = 'queued' AND NOT job.blocked AND job.kind > queued_kind.kind
                 ORDER BY job.kind LIMIT 1)
          FROM queued_kind WHERE queued_kind.kind IS NOT NULL
    ), dead_kind AS (
        (SELECT job.kind::text AS kind FROM background_jobs AS job WHERE job.status = 'dead' ORDER BY job.kind LIMIT 1)
        UNION ALL
        SELECT (SELECT job.kind::text FROM background_jobs AS job
                 WHERE job.status = 'dead' AND job.kind > dead_kind.kind ORDER BY job.kind LIMIT 1)
          FROM dead_kind WHERE dead_kind.kind IS NOT NULL
    ), found AS MATERIALIZED (
        (SELECT each.kind FROM queued_kind AS each
          WHERE each.kind IS NOT NULL AND NOT EXISTS (SELECT FROM background_kinds AS k WHERE k.kind = each.kind)
          LIMIT max_kinds)
        UNION
        (SELECT each.kind FROM dead_kind AS each
          WHERE each.kind IS NOT NULL AND NOT EXISTS (SELECT FROM background_kinds AS k WHERE k.kind = each.kind)
          LIMIT max_kinds)
    ), bound AS MATERIALIZED (
        SELECT least(at_most, greatest(100, 12000 / greatest(count(*), 1)))::integer AS jobs FROM found
    )
    SELECT found.kind,
           coalesce((SELECT job.pool::text FROM background_jobs AS job
                      WHERE job.kind = found.kind AND job.status = 'queued' AND NOT job.blocked LIMIT 1),
                    (SELECT job.pool::text FROM background_jobs AS job
                      WHERE job.kind = found.kind AND job.status = 'dead' ORDER BY job.id DESC LIMIT 1),
                    ''),
           bound.jobs, queue.due::bigint, queue.scheduled::bigint, background_count_dead(found.kind, bound.jobs),
           date_part('epoch', statement_timestamp()) - date_part('epoch', queue.oldest)
      FROM found CROSS JOIN bound
     CROSS JOIN LATERAL (
           SELECT least(sum(due.jobs), bound.jobs) AS due, min(due.oldest) AS oldest,
                  least(sum(scheduled.jobs), bound.jobs) AS scheduled
             FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
            CROSS JOIN (VALUES (true), (false)) AS side (is_nobodys)
            CROSS JOIN LATERAL (
                  SELECT count(*) AS jobs, min(entry.run_after) AS oldest
                    FROM (SELECT job.run_after FROM background_jobs AS job
                           WHERE job.kind = found.kind AND job.priority = level.priority
                             AND (job.organization_id IS NULL) = side.is_nobodys AND job.status = 'queued'
                             AND NOT job.blocked AND job.run_after <= statement_timestamp()
                           ORDER BY job.run_after, job.id LIMIT bound.jobs) AS entry
                  ) AS due
            CROSS JOIN LATERAL (
                  SELECT count(*) AS jobs
                    FROM (SELECT FROM background_jobs AS job
                           WHERE job.kind = found.kind AND job.priority = level.priority
                             AND (job.organization_id IS NULL) = side.is_nobodys AND job.status = 'queued'
                             AND NOT job.blocked AND job.run_after > statement_timestamp()
                           ORDER BY job.run_after, job.id LIMIT bound.jobs) AS entry
                  ) AS scheduled
           ) AS queue
     ORDER BY found.kind LIMIT max_kinds
$$;
