-- The two statements that every job passes, as functions: their plans are made once a connection, also behind a pooler
-- that keeps no prepared statement, and cannot flip with the statistics of a table that was empty a minute ago. Planning
-- the claim takes longer than claiming one job. What is switched off for them costs nothing where it is not wanted, except
-- that PostgreSQL before 18 takes a plan which has to use it for a costly one, and would compile it, for 40 ms.

-- Invariants 3 (charged once: the claim itself pays), 5 (one at a time per concurrency key) and 6 (a paused kind starts
-- nothing). One batch for one pool, by priority, then run_after, then id. The kind's declaration decides the pool, so
-- a row that names another one still gets the isolation that its work needs. Of each concurrency key at most one job is
-- taken: the best of the batch, if no job of the key runs and no other claim is deciding about the key right now. What
-- stands behind a running job is marked as blocked, so that no later claim looks at it again; the trigger on
-- background_jobs lets the next one go when the running one ends. `again` counts what makes another claim worth while:
-- the parked, and those whose key somebody else took or was deciding about since this statement began.
--
-- The marks are how far this worker has claimed, by kind and priority. Nothing up to them is looked at, nor what has been
-- due for longer than the reach, so the entries of finished jobs, which an old snapshot of anybody keeps in the index,
-- are not walked over by every claim.
CREATE FUNCTION background_claim(
    worker           uuid,
    of_pool          text,
    of_kinds         text[],
    slots            integer,
    reach            double precision DEFAULT 'infinity', -- seconds
    mark_kinds       text[] DEFAULT '{}',
    mark_priorities  smallint[] DEFAULT '{}',
    mark_run_afters  double precision[] DEFAULT '{}', -- seconds since 1970, which also say infinity
    mark_ids         bigint[] DEFAULT '{}'
) RETURNS TABLE (
    again bigint, id bigint, claim bigint, kind text, pool text, payload text, attempt integer, max_attempts integer,
    timeout interval, organization_id text, concurrency_key text, priority smallint, run_after double precision
) LANGUAGE plpgsql SET search_path FROM CURRENT
  SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    places      tid[];     -- of the candidates, which are locked: nobody moves them
    generations integer[]; -- of their kinds
    has_keys    boolean;
    earliest    timestamptz := to_timestamp(date_part('epoch', statement_timestamp()) - reach);
BEGIN
    SELECT array_agg(candidate.place), array_agg(candidate.generation), bool_or(candidate.has_key)
      INTO places, generations, has_keys
      FROM (SELECT due.place, coalesce(k.generation, 0) AS generation, due.has_key
              FROM unnest(of_kinds) AS known (kind)
              LEFT JOIN background_kinds AS k ON k.kind = known.kind
             CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
              LEFT JOIN unnest(mark_kinds, mark_priorities, mark_run_afters, mark_ids)
                        AS mark (kind, priority, run_after, id)
                     ON mark.kind = known.kind AND mark.priority = level.priority
             CROSS JOIN LATERAL (
                   SELECT job.ctid AS place, job.concurrency_key IS NOT NULL AS has_key,
                          job.priority, job.run_after, job.id
                     FROM background_jobs AS job
                    WHERE job.kind = known.kind AND job.priority = level.priority AND job.status = 'queued'
                      AND NOT job.blocked AND job.run_after <= statement_timestamp()
                      AND (job.run_after, job.id)
                          > (coalesce(to_timestamp(mark.run_after), earliest), coalesce(mark.id, -9223372036854775808))
                    ORDER BY job.run_after, job.id
                    LIMIT slots
                      FOR UPDATE SKIP LOCKED
                   ) AS due
             WHERE k.paused_at IS NULL
               AND EXISTS (SELECT 1 FROM background_workers AS w
                            WHERE w.id = worker AND w.lost_at IS NULL AND w.lease_until > clock_timestamp())
             ORDER BY due.priority, due.run_after, due.id
             LIMIT slots) AS candidate;
    IF places IS NULL THEN
        RETURN;
    END IF;
    IF NOT has_keys THEN
        RETURN QUERY
        WITH claimed AS (
            UPDATE background_jobs AS job
               SET status = 'running', pool = of_pool, claim = job.claim + 1, attempt = job.attempt + 1,
                   worker_id = worker, started_at = clock_timestamp(), finished_at = NULL, progress = NULL,
                   progress_note = NULL, generation = taken.generation
              FROM unnest(places, generations) AS taken (place, generation)
             WHERE job.ctid = taken.place
            RETURNING job.*
        )
        SELECT 0::bigint, c.id, c.claim, c.kind::text, c.pool::text, c.payload::text, c.attempt::integer,
               c.max_attempts::integer, c.timeout::interval, c.organization_id, NULL::text, c.priority::smallint,
               date_part('epoch', c.run_after)
          FROM claimed AS c ORDER BY c.priority, c.run_after, c.id;
        RETURN;
    END IF;
    RETURN QUERY
    WITH placed AS MATERIALIZED (
        SELECT job.ctid AS place, job.concurrency_key, taken.generation,
               row_number() OVER (PARTITION BY job.concurrency_key
                                  ORDER BY job.priority, job.run_after, job.id) AS position
          FROM unnest(places, generations) AS taken (place, generation)
          JOIN background_jobs AS job ON job.ctid = taken.place
    ), decided AS MATERIALIZED (
        SELECT placed.place, placed.concurrency_key, placed.generation,
               CASE WHEN placed.concurrency_key IS NULL THEN 'free'
                    WHEN position = 1
                         AND NOT EXISTS (SELECT 1 FROM background_jobs AS busy
                                          WHERE busy.status = 'running'
                                            AND busy.concurrency_key = placed.concurrency_key)
                    THEN background_hold_key(placed.concurrency_key)
               END AS key
          FROM placed
    ), free AS MATERIALIZED (
        SELECT decided.place, decided.concurrency_key, decided.generation FROM decided WHERE key = 'free'
    ), held AS MATERIALIZED (
        -- FOR SHARE: the running job cannot end before the mark below commits, and its end sees the mark.
        SELECT busy.concurrency_key FROM background_jobs AS busy
         WHERE busy.status = 'running'
           AND busy.concurrency_key IN (SELECT p.concurrency_key FROM placed AS p WHERE p.concurrency_key IS NOT NULL)
           FOR SHARE SKIP LOCKED
    ), parked AS (
        UPDATE background_jobs AS job SET blocked = true
          FROM placed
         WHERE job.ctid = placed.place
           AND placed.place NOT IN (SELECT f.place FROM free AS f)
           AND (placed.concurrency_key IN (SELECT h.concurrency_key FROM held AS h)
                OR placed.concurrency_key IN (SELECT f.concurrency_key FROM free AS f
                                               WHERE f.concurrency_key IS NOT NULL))
        RETURNING job.id
    ), claimed AS (
        UPDATE background_jobs AS job
           SET status = 'running', pool = of_pool, claim = job.claim + 1, attempt = job.attempt + 1,
               worker_id = worker, started_at = clock_timestamp(), finished_at = NULL, progress = NULL,
               progress_note = NULL, generation = free.generation
          FROM free
         WHERE job.ctid = free.place
        RETURNING job.*
    )
    SELECT (SELECT count(*) FROM parked) + (SELECT count(*) FROM decided WHERE key <> 'free'), c.id, c.claim,
           c.kind::text, c.pool::text, c.payload::text, c.attempt::integer, c.max_attempts::integer,
           c.timeout::interval, c.organization_id, c.concurrency_key::text, c.priority::smallint,
           date_part('epoch', c.run_after)
      FROM (VALUES (1)) AS always (one) LEFT JOIN claimed AS c ON true
     ORDER BY c.priority, c.run_after, c.id;
END $$;

-- Invariant 2, one owner: a success counts only for the claim that ran it. Answers what it did not write: what was lost,
-- and what needs more than this, because its kind has a streak or a probe. It waits for no lock of anybody for long: a
-- row in an open transaction must not hold up the others for ever; they are then written one by one.
CREATE FUNCTION background_complete(of_ids bigint[], of_claims bigint[], results text[])
RETURNS TABLE (refused_id bigint, refused_claim bigint) LANGUAGE plpgsql SET search_path FROM CURRENT
  SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
DECLARE
    -- Not as a constant: the index of running jobs, which is small by its statistics, would be walked for each id.
    running  text := 'running';
    troubled text[] := ARRAY(SELECT k.kind FROM background_kinds AS k
                              WHERE k.kill_streak > 0 OR k.probe_job_id IS NOT NULL);
BEGIN
    RETURN QUERY
    WITH written AS (
        UPDATE background_jobs AS job
           SET status = 'succeeded', finished_at = clock_timestamp(), result = given.result::jsonb,
               progress = NULL, progress_note = NULL, error = NULL
          FROM unnest(of_ids, of_claims, results) AS given (id, claim, result)
         WHERE job.id = given.id AND job.claim = given.claim AND job.status = running
           AND job.kind::text <> ALL (troubled)
        RETURNING job.id, job.claim
    )
    SELECT given.id, given.claim FROM unnest(of_ids, of_claims) AS given (id, claim)
     WHERE (given.id, given.claim) NOT IN (SELECT w.id, w.claim FROM written AS w);
END $$;

-- What waits in the queue, asked once a second by every worker: for each of these kinds of which anything waits, the
-- seconds until its first job is due (below zero: it is due), and whether its probe may go. Kinds that are paused, and
-- jobs that are blocked, wait for something else. What has been due for longer than the reach is not looked at.
--
-- The last row has no kind, and tells how many entries of the index were walked over for that, as PostgreSQL counts them:
-- a few for each kind, or all that an old snapshot of anybody keeps there.
CREATE FUNCTION background_look(of_kinds text[], reach double precision DEFAULT 'infinity')
RETURNS TABLE (kind text, due_in double precision, probe boolean, walked bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
  SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    earliest timestamptz := to_timestamp(date_part('epoch', statement_timestamp()) - reach);
    before   bigint := pg_stat_get_xact_tuples_returned('background_jobs_claim'::regclass);
BEGIN
    RETURN QUERY
    SELECT known.kind, min(date_part('epoch', first.run_after)) - date_part('epoch', clock_timestamp()),
           coalesce(bool_or(k.probe), false), 0::bigint
      FROM unnest(of_kinds) AS known (kind)
      LEFT JOIN background_kinds AS k ON k.kind = known.kind
     CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
     CROSS JOIN LATERAL (
           SELECT job.run_after FROM background_jobs AS job
            WHERE job.kind = known.kind AND job.priority = level.priority AND job.status = 'queued'
              AND NOT job.blocked AND job.run_after >= earliest AND job.run_after < 'infinity'
            ORDER BY job.run_after, job.id LIMIT 1
           ) AS first
     WHERE k.paused_at IS NULL OR (k.probe AND k.probe_job_id IS NULL)
     GROUP BY known.kind;
    RETURN QUERY SELECT NULL::text, NULL::double precision, NULL::boolean,
                        pg_stat_get_xact_tuples_returned('background_jobs_claim'::regclass) - before;
END $$;

-- Which clean-up there is to do, asked once a second by every worker; in a healthy fleet the answer is: none. `running` are
-- the jobs that run under this worker's name, `workers` those whose lease holds.
CREATE FUNCTION background_chores(of_worker uuid)
RETURNS TABLE (lost boolean, blocked boolean, unknown boolean, old boolean, running bigint, workers bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT
  SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE queued_kind AS (
        (SELECT job.kind::text AS kind FROM background_jobs AS job
          WHERE job.status = 'queued' AND NOT job.blocked ORDER BY job.kind LIMIT 1)
        UNION ALL
        SELECT (SELECT job.kind::text FROM background_jobs AS job
                 WHERE job.status = 'queued' AND NOT job.blocked AND job.kind > queued_kind.kind
                 ORDER BY job.kind LIMIT 1)
          FROM queued_kind WHERE queued_kind.kind IS NOT NULL
    )
    SELECT EXISTS (SELECT FROM background_workers AS w WHERE w.lost_at IS NULL AND w.lease_until < clock_timestamp())
           OR EXISTS (SELECT FROM background_jobs AS job
                       WHERE job.status = 'running'
                         AND NOT EXISTS (SELECT FROM background_workers AS w
                                          WHERE w.id = job.worker_id AND w.lost_at IS NULL)),
           EXISTS (SELECT FROM background_jobs AS job WHERE job.status = 'queued' AND job.blocked),
           EXISTS (SELECT FROM queued_kind
                    WHERE queued_kind.kind IS NOT NULL
                      AND NOT EXISTS (SELECT FROM background_workers AS w
                                       WHERE w.lost_at IS NULL AND w.lease_until > clock_timestamp()
                                         AND queued_kind.kind = ANY (w.kinds))),
           EXISTS (SELECT FROM background_workers AS w WHERE w.lost_at < clock_timestamp() - interval '1 day'),
           (SELECT count(*) FROM background_jobs AS job WHERE job.worker_id = of_worker AND job.status = 'running'),
           (SELECT count(*) FROM background_workers AS w WHERE w.lost_at IS NULL AND w.lease_until > clock_timestamp());
END $$;
