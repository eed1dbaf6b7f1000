-- What a worker knows of its kinds, for background_enqueue() and for people. In the order of their names: two workers
-- that start at once lock them in the same order.
INSERT INTO background_kinds AS k (kind, pool, priority, max_attempts, timeout)
SELECT * FROM unnest(%(kinds)s::text[], %(pools)s::text[], %(priorities)s::smallint[], %(max_attempts)s::integer[],
                     %(timeouts)s::interval[]) AS given (kind, pool, priority, max_attempts, timeout)
 ORDER BY given.kind
ON CONFLICT (kind) DO UPDATE
   SET pool = excluded.pool, priority = excluded.priority, max_attempts = excluded.max_attempts,
       timeout = excluded.timeout
 WHERE (k.pool, k.priority, k.max_attempts, k.timeout)
       IS DISTINCT FROM (excluded.pool, excluded.priority, excluded.max_attempts, excluded.timeout)
