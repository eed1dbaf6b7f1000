-- After a commit whose answer was lost, and after a handler's own `complete_in`: what became of this claim?
SELECT status, attempt, kind, generation, worker_id, started_at
  FROM background_jobs WHERE id = %(id)s AND claim = %(claim)s
