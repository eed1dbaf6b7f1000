-- What happened to one job, newest first. Its attempts are many only where an operator retried it often.
SELECT job_id, attempt, claim, worker_id, host, pid, started_at, finished_at, verdict, CAST(evidence AS text), charged,
       is_kill, signal, exit_code, peak_memory_mb, memory_limit_mb, cpu_seconds, CAST(error AS text), output_tail
  FROM background_attempts WHERE job_id = CAST(%(job_id)s AS bigint)
 ORDER BY claim DESC LIMIT CAST(%(limit)s AS integer)
