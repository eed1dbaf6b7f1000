-- Invariant 5 may block a job only while another of its key runs. The trigger wakes the next one at once; this finds what
-- no trigger can: the one that was woken got cancelled, or its kind was paused, or all that waited were of paused kinds.
-- Those stay blocked until the resume, or the others behind them would wait for a pass each. Walks the keys one by one
-- from `after`, a bounded number a pass. Answers the last key seen and how many jobs it let go.
WITH RECURSIVE key AS (
    (SELECT concurrency_key, 1 AS seen FROM background_jobs
      WHERE status = 'queued' AND blocked AND concurrency_key > %(after)s
      ORDER BY concurrency_key LIMIT 1)
    UNION ALL
    SELECT (SELECT job.concurrency_key FROM background_jobs AS job
             WHERE job.status = 'queued' AND job.blocked AND job.concurrency_key > key.concurrency_key
             ORDER BY job.concurrency_key LIMIT 1), key.seen + 1
      FROM key WHERE key.concurrency_key IS NOT NULL AND key.seen < %(limit)s
), freed AS (
    UPDATE background_jobs SET blocked = false
     WHERE id IN (
           SELECT head.id FROM key CROSS JOIN LATERAL (
                  SELECT job.id FROM background_jobs AS job
                   WHERE job.concurrency_key = key.concurrency_key AND job.status = 'queued' AND job.blocked
                     AND NOT EXISTS (SELECT 1 FROM background_kinds AS k
                                      WHERE k.kind = job.kind AND k.paused_at IS NOT NULL AND NOT k.probe)
                   ORDER BY job.priority, job.run_after, job.id LIMIT 1
                     FOR UPDATE SKIP LOCKED) AS head
            WHERE NOT EXISTS (SELECT 1 FROM background_jobs AS busy
                               WHERE busy.status = 'running' AND busy.concurrency_key = key.concurrency_key))
       AND status = 'queued'
    RETURNING kind
), woken AS (
    SELECT count(pg_notify('background_jobs', 'earlier ' || kind)) FROM (SELECT DISTINCT kind FROM freed) AS kinds
)
SELECT (SELECT max(concurrency_key) FROM key), (SELECT count(*) FROM freed), (SELECT * FROM woken)
