-- What runs, by kind and worker: the index of running jobs, which has as many entries as all workers have slots.
SELECT entry.kind, entry.pool, entry.worker_id, count(*)
  FROM (SELECT job.kind::text AS kind, job.pool::text AS pool, job.worker_id FROM background_jobs AS job
         WHERE job.status = 'running' LIMIT CAST(%(limit)s AS integer)) AS entry
 GROUP BY entry.kind, entry.pool, entry.worker_id
