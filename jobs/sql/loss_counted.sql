-- Whether this lost worker is already a kill of the kind. To be asked under the kind's lock.
SELECT EXISTS (SELECT 1 FROM background_attempts
                WHERE is_kill AND kind = %(kind)s AND worker_id = %(worker_id)s::uuid AND verdict = 'worker_lost')
