-- The same of what was done to a job, alone or with others: see background_find_audit_of_job in jobs/migrations.
SELECT id, at, actor, action, target, reason, CAST(detail AS text)
  FROM background_find_audit_of_job(CAST(%(job_id)s AS bigint), CAST(%(filter)s AS text)::jsonb,
                                    CAST(%(before)s AS bigint), CAST(%(limit)s AS integer))
 ORDER BY id DESC
