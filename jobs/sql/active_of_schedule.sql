-- Any occurrence that is not finished. In no order: by id, the index of all that ever ran would be walked.
SELECT job.id, job.status FROM background_jobs AS job
 WHERE job.schedule = CAST(%(name)s AS text) AND job.status IN ('queued', 'running') LIMIT 1
