-- The running jobs of this worker that an operator wants cancelled.
SELECT id, claim FROM background_jobs
 WHERE worker_id = %(worker_id)s::uuid AND status = 'running' AND cancel_requested_at IS NOT NULL
