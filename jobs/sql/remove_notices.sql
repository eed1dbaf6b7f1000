-- Old notices, and with them who was told; read or not. By id, which follows the time: the first batch alone is looked at.
DELETE FROM background_notices
 WHERE id IN (SELECT first.id FROM (SELECT id, at FROM background_notices ORDER BY id LIMIT %(limit)s::integer) AS first
               WHERE first.at < clock_timestamp() - %(keep)s::interval)
RETURNING id
