-- See background_undeclared in jobs/migrations.
SELECT * FROM background_undeclared(CAST(%(kinds)s AS integer), CAST(%(limit)s AS integer))
