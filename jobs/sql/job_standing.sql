-- See background_job_standing in jobs/migrations; and whether any live worker that knows the kind serves its pool. That is the
-- one that declares it: a claim asks for kinds, and writes its pool into the job.
SELECT standing.*,
       EXISTS (SELECT FROM background_jobs AS job
                 LEFT JOIN background_kinds AS k ON k.kind = job.kind
                 JOIN background_workers AS w ON job.kind = ANY (w.kinds) AND coalesce(k.pool, job.pool) = ANY (w.pools)
                WHERE job.id = CAST(%(id)s AS bigint) AND w.lost_at IS NULL AND w.lease_until > clock_timestamp())
  FROM background_job_standing(CAST(%(id)s AS bigint), CAST(%(limit)s AS integer)) AS standing
