-- See background_find_jobs in jobs/migrations; with the moment back to which it looked.
SELECT given.ids, given.looked_to,
       (SELECT least(greatest(job.created_at, '0001-01-02Z'), '9999-12-30Z') FROM background_jobs AS job
         WHERE job.id >= given.looked_to ORDER BY job.id LIMIT 1)
  FROM background_find_jobs(CAST(%(filter)s AS text)::jsonb, CAST(%(before)s AS bigint), CAST(%(limit)s AS integer),
                            CAST(%(milliseconds)s AS integer)) AS given
