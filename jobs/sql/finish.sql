-- Invariants 2 and 3: an attempt that did not simply succeed ends once, for the claim that ran it; no row means that the
-- claim was lost. `ending` is retry, bury, return or cancel. Invariant 5: a job that would go back to the queue while a
-- fresh copy of its dedupe key is queued makes room for that copy.
WITH running AS MATERIALIZED (
    SELECT job.*,
           (SELECT copy.id FROM background_jobs AS copy
             WHERE copy.kind = job.kind AND copy.dedupe_key = job.dedupe_key AND copy.status = 'queued'
             LIMIT 1) AS queued_copy
      FROM background_jobs AS job
     WHERE job.id = %(id)s AND job.claim = %(claim)s AND job.status = 'running'
       FOR UPDATE OF job
), decided AS (
    SELECT running.*,
           CASE WHEN %(ending)s = 'cancel' THEN 'cancelled'
                WHEN %(ending)s = 'bury' THEN 'dead'
                WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
                WHEN %(ending)s = 'retry' AND attempt >= max_attempts THEN 'dead'
                WHEN queued_copy IS NOT NULL THEN 'cancelled'
                ELSE 'queued'
           END AS next_status
      FROM running
), ended AS (
    UPDATE background_jobs AS job
       SET status = decided.next_status,
           attempt = job.attempt - %(refund)s::integer,
           run_after = CASE WHEN decided.next_status = 'queued' AND %(delay)s::interval > interval '0'
                            THEN clock_timestamp() + %(delay)s::interval ELSE job.run_after END,
           finished_at = CASE WHEN decided.next_status <> 'queued' THEN clock_timestamp() END,
           worker_id = CASE WHEN decided.next_status <> 'queued' THEN job.worker_id END,
           progress = NULL, progress_note = NULL,
           error = CASE WHEN decided.next_status = 'cancelled' AND decided.queued_copy IS NOT NULL
                             AND decided.cancel_requested_at IS NULL AND %(ending)s <> 'cancel'
                        THEN jsonb_build_object(
                             'type', 'Superseded', 'frames', '',
                             'message', 'job ' || decided.queued_copy || ', queued with the same dedupe key, takes its place')
                        ELSE coalesce(%(error)s::jsonb, job.error) END
      FROM decided
     WHERE job.id = decided.id
    RETURNING job.id
)
SELECT decided.next_status, decided.kind, decided.pool, decided.attempt, decided.generation, decided.worker_id,
       decided.started_at, decided.max_attempts,
       CASE WHEN decided.next_status = 'queued' AND %(delay)s::interval <= interval '0'
            THEN pg_notify('background_jobs', 'earlier ' || decided.kind) END
  FROM decided JOIN ended USING (id)
