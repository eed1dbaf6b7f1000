-- Waits for whoever ends its job, so that two submitters of a FAILED document make one job.
SELECT id, status, job_id FROM background_documents WHERE sha256 = CAST(%(sha256)s AS text) FOR UPDATE
