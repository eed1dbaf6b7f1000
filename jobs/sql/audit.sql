INSERT INTO background_audit (actor, action, target, reason, detail)
VALUES (%(actor)s, %(action)s, %(target)s, %(reason)s, %(detail)s::jsonb) RETURNING id
