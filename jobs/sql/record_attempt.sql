-- One row for every attempt that did not simply succeed. A second report of the same claim changes nothing.
INSERT INTO background_attempts (job_id, claim, attempt, kind, worker_id, host, pid, started_at, verdict, evidence,
                                 charged, is_kill, signal, exit_code, peak_memory_mb, memory_limit_mb, cpu_seconds,
                                 error, output_tail)
VALUES (%(id)s, %(claim)s, %(attempt)s, %(kind)s, %(worker_id)s,
        (SELECT host FROM background_workers WHERE id = %(worker_id)s), %(pid)s, %(started_at)s, %(verdict)s,
        %(evidence)s::jsonb, %(charged)s, %(is_kill)s, %(signal)s, %(exit_code)s, %(peak_memory_mb)s,
        %(memory_limit_mb)s, %(cpu_seconds)s, %(error)s::jsonb, %(output_tail)s)
ON CONFLICT DO NOTHING
