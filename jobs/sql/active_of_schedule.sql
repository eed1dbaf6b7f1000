-- An occurrence that is not finished.
SELECT job.id, job.status FROM background_jobs AS job
 WHERE job.schedule = CAST(%(name)s AS text) AND job.status IN ('queued', 'running')
 ORDER BY job.id LIMIT 1
