-- What a worker knows of its kinds, for background_enqueue() and for people. Nothing is locked where nothing differs: a
-- service may hold a kind's row for minutes. In the order of their names: two workers that start at once lock them in the
-- same order. Secret paths are only ever added (migration 0009); an array of arrays would be one, so they come as lines.
INSERT INTO background_kinds AS k (kind, pool, priority, max_attempts, timeout, important, max_per_organization,
                                   keep_succeeded, keep_dead, keep_cancelled, secret_paths)
SELECT kind, pool, priority, max_attempts, timeout, important, max_per_organization, keep_succeeded, keep_dead,
       keep_cancelled, string_to_array(secret_lines, E'\n')
  FROM unnest(%(kinds)s::text[], %(pools)s::text[], %(priorities)s::smallint[], %(max_attempts)s::integer[],
              %(timeouts)s::interval[], %(important)s::boolean[], %(max_per_organization)s::integer[],
              %(keep_succeeded)s::interval[], %(keep_dead)s::interval[], %(keep_cancelled)s::interval[],
              %(secret_lines)s::text[])
       AS given (kind, pool, priority, max_attempts, timeout, important, max_per_organization, keep_succeeded, keep_dead,
                 keep_cancelled, secret_lines)
 WHERE NOT EXISTS (SELECT FROM background_kinds AS same
                    WHERE same.kind = given.kind
                      AND (same.pool, same.priority, same.max_attempts, same.timeout, same.important,
                           same.max_per_organization, same.keep_succeeded, same.keep_dead, same.keep_cancelled)
                          IS NOT DISTINCT FROM (given.pool, given.priority, given.max_attempts, given.timeout,
                                                given.important, given.max_per_organization, given.keep_succeeded,
                                                given.keep_dead, given.keep_cancelled)
                      AND same.secret_paths @> string_to_array(given.secret_lines, E'\n'))
 ORDER BY given.kind
ON CONFLICT (kind) DO UPDATE
   SET pool = excluded.pool, priority = excluded.priority, max_attempts = excluded.max_attempts,
       timeout = excluded.timeout, important = excluded.important,
       max_per_organization = excluded.max_per_organization, keep_succeeded = excluded.keep_succeeded,
       keep_dead = excluded.keep_dead, keep_cancelled = excluded.keep_cancelled,
       secret_paths = ARRAY(SELECT DISTINCT unnest(k.secret_paths || excluded.secret_paths) ORDER BY 1)
