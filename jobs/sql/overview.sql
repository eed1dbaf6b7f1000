-- See background_overview in jobs/migrations.
SELECT * FROM background_overview(CAST(%(kinds)s AS integer), CAST(%(limit)s AS integer))
