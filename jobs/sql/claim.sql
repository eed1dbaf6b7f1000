-- Invariants 3, 5 and 6; see background_claim in jobs/migrations.
SELECT * FROM background_claim(%(worker_id)s::uuid, %(pool)s, %(kinds)s::text[], %(slots)s, %(reach)s::float8)
