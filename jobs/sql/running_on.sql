-- The worker that runs this job; none where it does not run, or runs under nobody.
SELECT worker.host, worker.pid
  FROM background_jobs AS job JOIN background_workers AS worker ON worker.id = job.worker_id
 WHERE job.id = CAST(%(job_id)s AS bigint) AND job.status = 'running'
