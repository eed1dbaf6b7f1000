-- See background_retry_job in jobs/migrations.
SELECT was, is_changed, copy_id FROM background_retry_job(%(id)s::bigint)
