-- Invariants 3, 5 and 6; see background_claim in jobs/migrations.
SELECT * FROM background_claim(%(worker_id)s::uuid, %(pool)s, %(kinds)s::text[], %(slots)s, %(reach)s::float8,
                               %(mark_kinds)s::text[], %(mark_priorities)s::smallint[], %(mark_run_afters)s::float8[],
                               %(mark_ids)s::bigint[], %(served)s::text[], %(stop_kinds)s::text[],
                               %(stop_priorities)s::smallint[], %(stops)s::text[])
