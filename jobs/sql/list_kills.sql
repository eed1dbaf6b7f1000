-- The attempts of a kind that took their process down, newest first, without what may be long.
SELECT job_id, attempt, claim, worker_id, host, pid, started_at, finished_at, verdict, CAST(evidence AS text), charged,
       is_kill, signal, exit_code, peak_memory_mb, memory_limit_mb, cpu_seconds, CAST(NULL AS text), CAST(NULL AS text)
  FROM background_attempts
 WHERE is_kill AND kind = CAST(%(kind)s AS text)
 ORDER BY finished_at DESC LIMIT CAST(%(limit)s AS integer)
