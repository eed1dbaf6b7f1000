-- What became of these claims; of one that is not its job's newest, nothing.
SELECT id, claim, status FROM background_jobs
  JOIN unnest(%(ids)s::bigint[], %(claims)s::bigint[]) AS given (id, claim) USING (id, claim)
