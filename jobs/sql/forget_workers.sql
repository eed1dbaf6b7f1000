-- Lost workers stay a day for people to look at, then go; never while a job still names one.
DELETE FROM background_workers AS w
 WHERE w.lost_at < clock_timestamp() - interval '1 day'
   AND NOT EXISTS (SELECT 1 FROM background_jobs AS job WHERE job.worker_id = w.id AND job.status = 'running')
