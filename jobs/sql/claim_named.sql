-- Invariants 3, 5 and 6, as background_claim in jobs/migrations: these jobs, as far as nothing else has to be known of the
-- queue to start them. The others are that function's: what has a concurrency key, and what is of a bounded organisation.
UPDATE background_jobs AS job
   SET status = 'running', pool = %(pool)s, claim = job.claim + 1, attempt = job.attempt + 1, worker_id = owner.id,
       started_at = clock_timestamp(), finished_at = NULL, progress = NULL, progress_note = NULL,
       generation = kind.generation, limited = false
  FROM background_kinds AS kind, background_workers AS owner
 WHERE job.ctid = ANY (ARRAY (SELECT named.ctid FROM background_jobs AS named
                               WHERE named.id = ANY (%(ids)s::bigint[]) AND named.kind = ANY (%(kinds)s::text[])
                                 AND named.status = 'queued' AND NOT named.blocked AND named.concurrency_key IS NULL
                                 AND named.run_after <= statement_timestamp()
                                 FOR UPDATE SKIP LOCKED))
   AND kind.kind = job.kind AND kind.paused_at IS NULL
   AND (job.organization_id IS NULL OR kind.max_per_organization IS NULL)
   AND owner.id = %(worker_id)s::uuid AND owner.lost_at IS NULL AND owner.lease_until > clock_timestamp()
RETURNING 0, job.id, job.claim, job.kind, job.pool, job.payload::text, job.attempt, job.max_attempts, job.timeout,
          job.organization_id, job.concurrency_key, job.priority, date_part('epoch', job.run_after)
