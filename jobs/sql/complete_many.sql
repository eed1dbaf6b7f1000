-- Invariant 2; see background_complete in jobs/migrations.
SELECT * FROM background_complete(%(ids)s::bigint[], %(claims)s::bigint[], %(results)s::text[])
