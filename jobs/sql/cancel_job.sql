-- See background_cancel_job in jobs/migrations.
SELECT was, becomes FROM background_cancel_job(%(id)s::bigint, %(error)s::text::jsonb)
