-- Of a job that goes on and on, a schedule's or one that snoozes, the newest attempts stay and a batch of the others goes.
-- Answers how many went.
WITH gone AS (
    DELETE FROM background_attempts
     WHERE (job_id, claim) IN (
           SELECT a.job_id, a.claim FROM background_jobs AS job
             JOIN background_attempts AS a ON a.job_id = job.id AND a.claim <= job.claim - %(keep)s::bigint
            WHERE job.id > %(after)s::bigint AND job.id <= %(to)s::bigint AND job.claim > %(keep)s::bigint
            LIMIT %(limit)s::integer)
    RETURNING job_id
)
SELECT count(*) FROM gone
