-- The traces that these jobs belong to. Apart from the claim, which every job pays for: only a worker that is traced asks.
SELECT id, trace_context FROM background_jobs WHERE id = ANY (%(ids)s::bigint[]) AND trace_context IS NOT NULL
