-- A fresh start by an operator. Answers the status before, whether it changed, and the queued copy that forbids it.
WITH found AS MATERIALIZED (
    SELECT job.id, job.status,
           (SELECT copy.id FROM background_jobs AS copy
             WHERE copy.kind = job.kind AND copy.dedupe_key = job.dedupe_key AND copy.id <> job.id
               AND copy.status IN ('queued', 'running')
               AND (copy.status = 'queued' OR copy.dedupe_active OR job.dedupe_active) LIMIT 1) AS queued_copy
      FROM background_jobs AS job WHERE job.id = %(id)s::bigint FOR UPDATE OF job
), restarted AS (
    UPDATE background_jobs AS job
       SET status = 'queued', attempt = 0, run_after = now(), finished_at = NULL, worker_id = NULL, blocked = false,
           cancel_requested_at = NULL
      FROM found
     WHERE job.id = found.id AND found.status IN ('dead', 'cancelled') AND found.queued_copy IS NULL
    RETURNING job.id, pg_notify('background_jobs', 'new ' || job.kind) AS woken
)
SELECT found.status, restarted.id IS NOT NULL,
       CASE WHEN found.status IN ('dead', 'cancelled') THEN found.queued_copy END
  FROM found LEFT JOIN restarted USING (id)
