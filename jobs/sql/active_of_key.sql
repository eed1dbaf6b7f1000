-- See background_active_of_key in jobs/migrations.
SELECT id FROM background_active_of_key(CAST(%(key)s AS text), CAST(%(limit)s AS integer)) AS id
