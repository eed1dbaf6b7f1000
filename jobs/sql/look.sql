-- See background_look in jobs/migrations.
SELECT * FROM background_look(%(kinds)s::text[], %(reach)s::float8)
