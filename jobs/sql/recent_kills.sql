-- The kills that make a streak, newest first: who, where, on what evidence.
SELECT job_id, attempt, verdict, coalesce(host, 'unknown host'), evidence ->> 'why'
  FROM background_attempts WHERE kind = %(kind)s AND is_kill ORDER BY finished_at DESC LIMIT %(count)s
