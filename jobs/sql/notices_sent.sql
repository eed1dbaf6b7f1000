-- Not behind the job's fence: what a server has taken is sent, whoever owns the job by now.
UPDATE background_notice_deliveries SET sent_at = clock_timestamp() WHERE job_id = %(job_id)s AND sent_at IS NULL
