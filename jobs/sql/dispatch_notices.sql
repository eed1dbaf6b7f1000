-- One job for all that one recipient is to be told of now, and which notices it brings: both or neither.
WITH due AS MATERIALIZED (
    SELECT id FROM background_due_notices(%(channel)s::text, %(recipient)s::text, %(digest)s::interval) AS notice (id)
), job AS (
    INSERT INTO background_jobs (kind, pool, priority, max_attempts, timeout, payload)
    SELECT %(kind)s, %(pool)s, %(priority)s, %(max_attempts)s, %(timeout)s::interval, %(payload)s::jsonb
     WHERE EXISTS (SELECT FROM due)
    RETURNING id
), last AS (
    INSERT INTO background_notice_recipients (channel, recipient, job_id, dispatched_at)
    SELECT %(channel)s, %(recipient)s, job.id, clock_timestamp() FROM job
    ON CONFLICT (channel, recipient) DO UPDATE
       SET job_id = excluded.job_id, dispatched_at = excluded.dispatched_at
)
INSERT INTO background_notice_deliveries AS delivery (notice_id, channel, recipient, job_id)
SELECT due.id, %(channel)s, %(recipient)s, job.id FROM due CROSS JOIN job
ON CONFLICT (notice_id, channel, recipient) DO UPDATE
   SET job_id = excluded.job_id WHERE delivery.sent_at IS NULL
