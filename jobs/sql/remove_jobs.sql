-- Removes what of the next jobs, by id, has been finished for longer than its status and kind are kept; a time of zero
-- keeps for ever. Waits for nobody: a row that somebody holds is left to the next lap. Invariant 7: the newest occurrence
-- of a schedule stays while there is the schedule. Answers how many jobs it has seen, how each that it removed had ended,
-- the last one seen, the first one kept, whether all were too young to look any further, and the newest job of all.
WITH seen AS MATERIALIZED (
    SELECT job.id, job.kind::text AS kind, job.status::text AS status, job.created_at, job.schedule, job.occurrence
      FROM background_jobs AS job
     WHERE job.id > %(after)s::bigint AND job.id <= %(after)s::bigint + %(span)s::bigint
     ORDER BY job.id LIMIT %(limit)s::integer
), judged AS MATERIALIZED (
    SELECT seen.*, CASE seen.status WHEN 'succeeded' THEN coalesce(k.keep_succeeded, %(succeeded)s::interval)
                                    WHEN 'dead' THEN coalesce(k.keep_dead, %(dead)s::interval)
                                    WHEN 'cancelled' THEN coalesce(k.keep_cancelled, %(cancelled)s::interval)
                   END AS keep
      FROM seen LEFT JOIN background_kinds AS k ON k.kind = seen.kind
), old AS MATERIALIZED (
    SELECT job.id FROM judged JOIN background_jobs AS job ON job.id = judged.id
     WHERE judged.keep > interval '0' AND job.status = judged.status
       AND coalesce(job.finished_at, job.created_at) < statement_timestamp() - judged.keep
       AND (judged.schedule IS NULL
            OR NOT EXISTS (SELECT FROM background_schedules AS s WHERE s.name = judged.schedule)
            OR judged.occurrence < (SELECT max(newest.occurrence) FROM background_jobs AS newest
                                     WHERE newest.schedule = judged.schedule))
       FOR UPDATE OF job SKIP LOCKED
), removed AS (
    DELETE FROM background_jobs AS job USING old WHERE job.id = old.id RETURNING job.id, job.status::text AS status
), shortest AS (
    SELECT min(keep) AS keep FROM (
           SELECT unnest(ARRAY[%(succeeded)s::interval, %(dead)s::interval, %(cancelled)s::interval]) AS keep
           UNION ALL
           SELECT unnest(ARRAY[k.keep_succeeded, k.keep_dead, k.keep_cancelled]) FROM background_kinds AS k
           ) AS each WHERE keep > interval '0'
)
SELECT (SELECT count(*) FROM seen), ARRAY(SELECT r.status FROM removed AS r), (SELECT max(id) FROM seen),
       (SELECT min(id) FROM seen WHERE id NOT IN (SELECT r.id FROM removed AS r)),
       coalesce((SELECT bool_and(seen.created_at > statement_timestamp() - shortest.keep) FROM seen),
                shortest.keep IS NULL),
       (SELECT max(id) FROM background_jobs)
  FROM shortest
