-- Old records of what operators did. By id, which follows the time: the first batch alone is looked at.
DELETE FROM background_audit
 WHERE id IN (SELECT first.id FROM (SELECT id, at FROM background_audit ORDER BY id LIMIT %(limit)s::integer) AS first
               WHERE first.at < clock_timestamp() - %(keep)s::interval)
RETURNING id
