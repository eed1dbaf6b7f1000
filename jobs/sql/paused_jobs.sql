-- Invariant 6: which of these jobs, claimed and not started yet, are of a kind that was paused since. Not its probe.
SELECT waiting.id FROM unnest(%(ids)s::bigint[], %(kinds)s::text[]) AS waiting (id, kind)
  JOIN background_kinds AS k ON k.kind = waiting.kind
 WHERE k.paused_at IS NOT NULL AND k.probe_job_id IS DISTINCT FROM waiting.id
