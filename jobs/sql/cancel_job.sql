-- A queued job ends here; the worker of a running one is asked. Answers the status before and after, NULL for a job that
-- had ended already.
WITH found AS MATERIALIZED (
    SELECT id, status FROM background_jobs WHERE id = %(id)s::bigint FOR UPDATE
), changed AS (
    UPDATE background_jobs AS job
       SET status = CASE WHEN found.status = 'queued' THEN 'cancelled' ELSE job.status END,
           finished_at = CASE WHEN found.status = 'queued' THEN clock_timestamp() END,
           error = %(error)s::jsonb,
           cancel_requested_at = coalesce(job.cancel_requested_at, clock_timestamp())
      FROM found
     WHERE job.id = found.id AND found.status IN ('queued', 'running')
    RETURNING job.id, job.status, pg_notify('background_control', 'cancel') AS told
)
SELECT found.status, changed.status FROM found LEFT JOIN changed USING (id)
