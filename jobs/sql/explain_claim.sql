-- How a claim would find its candidates; the statement inside of background_claim that walks the queue (its migration
-- says why it is as it is). Nothing is run or locked.
EXPLAIN (FORMAT JSON)
SELECT due.place
  FROM unnest(%(kinds)s::text[]) AS known (kind)
  LEFT JOIN background_kinds AS k ON k.kind = known.kind
 CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
 CROSS JOIN (VALUES (true), (false)) AS side (is_nobodys)
 CROSS JOIN LATERAL (
       SELECT job.ctid AS place, job.concurrency_key IS NOT NULL AS has_key,
              job.priority, job.run_after, job.id
         FROM background_jobs AS job
        WHERE job.kind = known.kind AND job.priority = level.priority
          AND (job.organization_id IS NULL) = side.is_nobodys AND job.status = 'queued'
          AND NOT job.blocked AND job.run_after <= statement_timestamp()
          AND (job.run_after, job.id)
              > ('-infinity'::timestamptz, -9223372036854775808)
        ORDER BY job.run_after, job.id
        LIMIT CASE WHEN side.is_nobodys OR k.max_per_organization IS NULL THEN %(slots)s ELSE 1 END
          FOR UPDATE SKIP LOCKED
       ) AS due
 ORDER BY due.priority, due.run_after, due.id
