-- See background_job_standing in jobs/migrations.
SELECT * FROM background_job_standing(CAST(%(id)s AS bigint), CAST(%(limit)s AS integer))
