-- What an operator looks at: activity over time, what each worker holds, jobs by whatever filter, and many jobs at once.
-- Nothing here costs a claim or an outcome anything but the index entry of a job that dies.

-- The dead of one kind, and the jobs of one schedule, newest first.
-- step: concurrently
CREATE INDEX CONCURRENTLY background_jobs_dead_kind ON background_jobs (kind, id) WHERE status = 'dead';
-- step: concurrently
CREATE INDEX CONCURRENTLY background_jobs_schedule ON background_jobs (schedule, id) WHERE schedule IS NOT NULL;

-- step: in one transaction
-- What happened in one span of time, by kind; of kind '' all kinds together. Successes leave no attempt behind and finished
-- jobs have no index by time, so workers add up here what they count as they work: see jobs/activity.py, which also has the
-- bounds of the histograms. The same counts stand here by minute and by quarter of an hour: a look at an hour and a look at
-- a week both read some hundred rows.
CREATE TABLE background_activity (
    seconds   integer NOT NULL,           -- the span's length
    at        timestamptz NOT NULL,       -- its begin
    kind      text NOT NULL,
    limit_mb  integer,                    -- the memory that the last attempt might use
    peak_mb   real,                       -- the most that one used
    verdicts  integer[] NOT NULL,         -- attempts that ended, in the order of jobs.outcome.Verdict
    waits     integer[] NOT NULL,         -- claims, by how long the job had been due
    runs      integer[] NOT NULL,         -- attempts, by the time from claim to end
    peaks     integer[] NOT NULL,         -- attempts with a child, by the most memory that it used
    PRIMARY KEY (seconds, at, kind)
) WITH (fillfactor = 60); -- a row is updated in its place until its span is over

-- Two histograms as one.
CREATE FUNCTION background_sums(one integer[], other integer[]) RETURNS integer[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY(SELECT coalesce(pair.one, 0) + coalesce(pair.other, 0) FROM unnest(one, other) AS pair (one, other));

-- How a worker is, as it last said itself; it says so anew when it changes. Apart from its lease, which must wait for
-- nothing that is written here.
CREATE TABLE background_worker_states (
    worker_id        uuid PRIMARY KEY REFERENCES background_workers ON DELETE CASCADE,
    at               timestamptz NOT NULL,
    memory_mb        real,                -- of the worker process itself
    children         integer,             -- NULL for a worker without the pool of children, like what follows
    children_mb      real,                -- of all children with what they started
    largest_child_mb real,
    template_up      boolean,
    slots            jsonb NOT NULL       -- {"agent": {"used": 3, "total": 100}}
) WITH (fillfactor = 50);

-- Whether a job passes a filter, whose fields are those of jobs.finding.JobFilter; what is not given passes. The planner
-- puts this in the place of its call, and leaves out what is not given. A key is either of the two.
CREATE FUNCTION background_job_passes(job background_jobs, filter jsonb) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT (filter ->> 'status' IS NULL OR job.status = filter ->> 'status')
       AND (filter ->> 'kind' IS NULL OR job.kind = filter ->> 'kind')
       AND (filter ->> 'pool' IS NULL OR job.pool = filter ->> 'pool')
       AND (filter ->> 'organization_id' IS NULL OR job.organization_id = filter ->> 'organization_id')
       AND (filter ->> 'worker_id' IS NULL OR job.worker_id = (filter ->> 'worker_id')::uuid)
       AND (filter ->> 'schedule' IS NULL OR job.schedule = filter ->> 'schedule')
       AND (filter ->> 'key' IS NULL OR job.dedupe_key = filter ->> 'key' OR job.concurrency_key = filter ->> 'key')
       AND (filter ->> 'created_from' IS NULL OR job.created_at >= (filter ->> 'created_from')::timestamptz)
       AND (filter ->> 'created_until' IS NULL OR job.created_at < (filter ->> 'created_until')::timestamptz)
       AND (filter ->> 'finished_from' IS NULL OR job.finished_at >= (filter ->> 'finished_from')::timestamptz)
       AND (filter ->> 'finished_until' IS NULL OR job.finished_at < (filter ->> 'finished_until')::timestamptz)
$$;

-- The first id of those that were created at this moment or later, to be found without an index by time: created_at nearly
-- follows the id. Nearly, because a job is created when its transaction began, and by hand at any time: allow for minutes.
CREATE FUNCTION background_id_at(moment timestamptz) RETURNS bigint LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
  SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
  SET jit = off AS $$
DECLARE
    low   bigint := (SELECT job.id FROM background_jobs AS job ORDER BY job.id LIMIT 1);
    high  bigint := (SELECT job.id + 1 FROM background_jobs AS job ORDER BY job.id DESC LIMIT 1);
    probe record;
BEGIN
    WHILE low < high LOOP
        SELECT job.id, job.created_at INTO probe
          FROM background_jobs AS job WHERE job.id >= low + (high - low) / 2 ORDER BY job.id LIMIT 1;
        IF probe.created_at < moment THEN
            low := probe.id + 1;
        ELSE
            high := low + (high - low) / 2;
        END IF;
    END LOOP;
    RETURN low;
END $$;

-- All jobs that a filter can find, and some more, where an index has no more than this many of them; else NULL. That index
-- has them in another order than that of their ids.
CREATE FUNCTION background_candidates(filter jsonb, at_most integer) RETURNS bigint[] LANGUAGE plpgsql STABLE
  SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET enable_seqscan = off
  SET enable_bitmapscan = off SET max_parallel_workers_per_gather = 0 SET jit = off AS $$
DECLARE
    of_kind   text := filter ->> 'kind';
    of_worker uuid := filter ->> 'worker_id';
    ids       bigint[];
BEGIN
    IF filter ->> 'status' = 'running' THEN
        ids := ARRAY(SELECT job.id FROM background_jobs AS job
                      WHERE job.status = 'running' AND (of_worker IS NULL OR job.worker_id = of_worker)
                      LIMIT at_most + 1);
    ELSIF filter ->> 'status' = 'queued' THEN
        ids := ARRAY(SELECT job.id FROM background_jobs AS job
                      WHERE job.status = 'queued' AND NOT job.blocked AND (of_kind IS NULL OR job.kind = of_kind)
                      LIMIT at_most + 1)
            || ARRAY(SELECT job.id FROM background_jobs AS job WHERE job.status = 'queued' AND job.blocked
                      LIMIT at_most + 1);
    END IF;
    RETURN CASE WHEN cardinality(ids) <= at_most THEN ids END;
END $$;

-- The newest few of the dead, perhaps of one kind, or else of a schedule: from the index that has them in this order. Pages
-- cost nothing here, so that the fewest rows win: the planner thinks that what is rare lies close together in the order of
-- its ids, and would fetch all of the dead to look at their kind.
CREATE FUNCTION background_window(filter jsonb, lowest bigint, above bigint, at_most integer) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET enable_seqscan = off
  SET enable_bitmapscan = off SET enable_sort = off SET max_parallel_workers_per_gather = 0 SET jit = off
  SET seq_page_cost = 0 SET random_page_cost = 0 AS $$
DECLARE
    of_kind text := filter ->> 'kind';
BEGIN
    IF filter ->> 'status' = 'dead' THEN
        RETURN ARRAY(SELECT job.id FROM background_jobs AS job
                      WHERE job.status = 'dead' AND (of_kind IS NULL OR job.kind = of_kind)
                        AND job.id >= lowest AND job.id < above
                      ORDER BY job.id DESC LIMIT at_most);
    END IF;
    RETURN ARRAY(SELECT job.id FROM background_jobs AS job
                  WHERE job.schedule = filter ->> 'schedule' AND job.id >= lowest AND job.id < above
                  ORDER BY job.id DESC LIMIT at_most);
END $$;

-- How many are dead of one kind, up to a limit; for the same reason apart.
CREATE FUNCTION background_count_dead(of_kind text, at_most integer) RETURNS bigint LANGUAGE sql STABLE
  SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
  SET seq_page_cost = 0 SET random_page_cost = 0 AS $$
    SELECT count(*) FROM (SELECT FROM background_jobs AS job
                           WHERE job.status = 'dead' AND job.kind = of_kind LIMIT at_most) AS entry
$$;

-- The newest `at_most` jobs below the id `before` that pass a filter. Where no index has them all, the table is walked back
-- by its primary key, a window at a time, until there are enough or the time is over. `looked_to` is the id down to which
-- there are no others: go on before it. It is NULL where nothing is left. The dead, and the jobs of a schedule, have an
-- index of their own in that order.
CREATE FUNCTION background_find_jobs(
    filter jsonb, before bigint, at_most integer, milliseconds integer, OUT ids bigint[], OUT looked_to bigint
) LANGUAGE plpgsql STABLE
  SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET enable_seqscan = off
  SET enable_bitmapscan = off SET enable_sort = off SET max_parallel_workers_per_gather = 0 SET jit = off AS $$
#variable_conflict use_variable
DECLARE
    walk       constant integer := 5000;           -- neighbours of a window: a few milliseconds
    few        constant integer := 1000;           -- jobs of a window that lie apart
    nearly     constant interval := '15 minutes';  -- how far created_at may be from what the id says
    ends       constant timestamptz := clock_timestamp() + make_interval(secs => milliseconds / 1000.0);
    latest     timestamptz := least((filter ->> 'created_until')::timestamptz,
                                    (filter ->> 'finished_until')::timestamptz);
    above      bigint := coalesce(before, 9223372036854775807);
    lowest     bigint := coalesce((filter ->> 'id')::bigint, -9223372036854775808);
    below      bigint;
    neighbours bigint[];
    candidates bigint[];
BEGIN
    ids := '{}';
    IF filter ->> 'id' IS NOT NULL THEN
        above := least(above, lowest + 1);
    END IF;
    IF filter ->> 'created_from' IS NOT NULL THEN
        lowest := greatest(lowest, background_id_at((filter ->> 'created_from')::timestamptz - nearly));
    END IF;
    IF latest IS NOT NULL THEN
        above := least(above, background_id_at(latest + nearly));
    END IF;
    candidates := background_candidates(filter, 4 * few);
    IF candidates IS NOT NULL THEN
        ids := ARRAY(SELECT job.id FROM background_jobs AS job
                      WHERE job.id = ANY (candidates) AND job.id >= lowest AND job.id < above
                        AND background_job_passes(job, filter)
                      ORDER BY job.id DESC LIMIT at_most);
        looked_to := ids[at_most];
        RETURN;
    END IF;
    LOOP
        IF filter ->> 'status' = 'dead' OR filter ->> 'schedule' IS NOT NULL THEN
            neighbours := background_window(filter, lowest, above, few);
            below := coalesce(neighbours[few], lowest);
            ids := ids || ARRAY(SELECT job.id FROM background_jobs AS job
                                 WHERE job.id = ANY (neighbours) AND background_job_passes(job, filter)
                                 ORDER BY job.id DESC LIMIT at_most - cardinality(ids));
        ELSE
            SELECT job.id - walk INTO below FROM background_jobs AS job -- past what has been deleted
             WHERE job.id >= lowest AND job.id < above ORDER BY job.id DESC LIMIT 1;
            below := greatest(below, lowest);
            ids := ids || ARRAY(SELECT job.id FROM background_jobs AS job
                                 WHERE job.id >= below AND job.id < above AND background_job_passes(job, filter)
                                 ORDER BY job.id DESC LIMIT at_most - cardinality(ids));
        END IF;
        IF cardinality(ids) >= at_most THEN
            looked_to := ids[at_most];
            RETURN;
        END IF;
        EXIT WHEN below = lowest;
        above := below;
        IF clock_timestamp() >= ends THEN
            looked_to := above;
            RETURN;
        END IF;
    END LOOP;
END $$;

-- Queued and running jobs of a key, either of the two kinds of keys, as far as an index knows them.
CREATE FUNCTION background_active_of_key(of_key text, at_most integer) RETURNS SETOF bigint LANGUAGE sql STABLE
  SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
  SET enable_mergejoin = off SET jit = off AS $$
    (SELECT job.id FROM background_jobs AS job WHERE job.status = 'running' AND job.concurrency_key = of_key)
    UNION
    (SELECT job.id FROM background_jobs AS job WHERE job.status = 'queued' AND job.blocked AND job.concurrency_key = of_key
      ORDER BY job.priority, job.run_after, job.id LIMIT at_most)
    UNION
    (SELECT job.id FROM background_kinds AS k
      CROSS JOIN LATERAL (SELECT each.id FROM background_jobs AS each
                           WHERE each.kind = k.kind AND each.dedupe_key = of_key AND each.status IN ('queued', 'running')
                           LIMIT at_most) AS job
      LIMIT at_most)
$$;

-- What waits in the queue, by kind: bounded counts and the oldest, never a count over the table. Of each kind and priority
-- the index of claims (that of migration 0011) is read up to the limit, once for what is due and once for what is
-- scheduled; of what is blocked, the limit is for all kinds together.
CREATE FUNCTION background_queue(max_kinds integer, at_most integer) RETURNS TABLE (
    kind text, pool text, paused boolean, kill_streak integer, kinds bigint, told_at double precision, -- by the clock
    due bigint, scheduled bigint, blocked bigint, oldest timestamptz
) LANGUAGE sql STABLE SET search_path FROM CURRENT
  -- By its indexes whatever the statistics say of a table that was empty a minute ago.
  SET enable_seqscan = off SET enable_bitmapscan = off SET max_parallel_workers_per_gather = 0 SET jit = off AS $$
    WITH known AS MATERIALIZED (
        SELECT k.kind, coalesce(k.pool, '') AS pool, k.paused_at IS NOT NULL AS paused, k.kill_streak,
               count(*) OVER () AS kinds
          FROM background_kinds AS k ORDER BY k.kind LIMIT max_kinds
    ), blocked AS MATERIALIZED (
        SELECT entry.kind, count(*) AS jobs
          FROM (SELECT job.kind::text AS kind FROM background_jobs AS job
                 WHERE job.status = 'queued' AND job.blocked LIMIT at_most) AS entry
         GROUP BY entry.kind
    )
    SELECT known.kind, known.pool, known.paused, known.kill_streak, known.kinds, date_part('epoch', clock_timestamp()),
           queue.due::bigint, queue.scheduled::bigint, coalesce(blocked.jobs, 0), queue.oldest
      FROM known
      LEFT JOIN blocked ON blocked.kind = known.kind
     CROSS JOIN LATERAL (
           SELECT least(sum(due.jobs), at_most) AS due, min(due.oldest) AS oldest,
                  least(sum(scheduled.jobs), at_most) AS scheduled
             FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
            CROSS JOIN (VALUES (true), (false)) AS side (is_nobodys)
            CROSS JOIN LATERAL (
                  SELECT count(*) AS jobs, min(entry.run_after) AS oldest
                    FROM (SELECT job.run_after FROM background_jobs AS job
                           WHERE job.kind = known.kind AND job.priority = level.priority
                             AND (job.organization_id IS NULL) = side.is_nobodys AND job.status = 'queued'
                             AND NOT job.blocked AND job.run_after <= statement_timestamp()
                           ORDER BY job.run_after, job.id LIMIT at_most) AS entry
                  ) AS due
            CROSS JOIN LATERAL (
                  SELECT count(*) AS jobs
                    FROM (SELECT FROM background_jobs AS job
                           WHERE job.kind = known.kind AND job.priority = level.priority
                             AND (job.organization_id IS NULL) = side.is_nobodys AND job.status = 'queued'
                             AND NOT job.blocked AND job.run_after > statement_timestamp()
                           ORDER BY job.run_after, job.id LIMIT at_most) AS entry
                  ) AS scheduled
           ) AS queue
     ORDER BY known.kind
$$;

-- The same for people, with what runs and what is dead. The limit of each count is the smaller the more kinds there are;
-- a count that reaches it means: or more.
CREATE FUNCTION background_overview(max_kinds integer, at_most integer) RETURNS TABLE (
    kind text, pool text, paused boolean, kill_streak integer, kinds bigint, count_limit integer,
    due bigint, scheduled bigint, blocked bigint, running bigint, dead bigint, oldest_age double precision
) LANGUAGE sql STABLE SET search_path FROM CURRENT
  SET enable_seqscan = off SET enable_bitmapscan = off SET max_parallel_workers_per_gather = 0 SET jit = off AS $$
    WITH bound AS MATERIALIZED (
        SELECT least(at_most, greatest(100, 24000 / greatest(count(*), 1)))::integer AS jobs
          FROM (SELECT FROM background_kinds LIMIT max_kinds) AS kind
    ), running AS MATERIALIZED (
        SELECT entry.kind, count(*) AS jobs
          FROM (SELECT job.kind::text AS kind FROM background_jobs AS job
                 WHERE job.status = 'running' LIMIT at_most) AS entry
         GROUP BY entry.kind
    )
    SELECT queue.kind, queue.pool, queue.paused, queue.kill_streak, queue.kinds, bound.jobs,
           queue.due, queue.scheduled, queue.blocked, coalesce(running.jobs, 0),
           background_count_dead(queue.kind, bound.jobs),
           date_part('epoch', statement_timestamp()) - date_part('epoch', queue.oldest)
      FROM bound CROSS JOIN LATERAL background_queue(max_kinds, bound.jobs) AS queue
      LEFT JOIN running ON running.kind = queue.kind
     ORDER BY queue.kind
$$;

-- A fresh start by an operator, of one job or of many. Answers the status before, whether it changed, and the queued copy
-- that forbids it.
CREATE FUNCTION background_retry_job(of_id bigint) RETURNS TABLE (was text, is_changed boolean, copy_id bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
  SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    FOR try IN 1 .. 3 LOOP
        BEGIN
            RETURN QUERY
            WITH found AS MATERIALIZED (
                SELECT job.id, job.status,
                       (SELECT copy.id FROM background_jobs AS copy
                         WHERE copy.kind = job.kind AND copy.dedupe_key = job.dedupe_key AND copy.id <> job.id
                           AND copy.status IN ('queued', 'running')
                           AND (copy.status = 'queued' OR copy.dedupe_active OR job.dedupe_active) LIMIT 1) AS queued_copy
                  FROM background_jobs AS job WHERE job.id = of_id FOR UPDATE OF job
            ), restarted AS (
                UPDATE background_jobs AS job
                   SET status = 'queued', attempt = 0, run_after = now(), finished_at = NULL, worker_id = NULL,
                       blocked = false, cancel_requested_at = NULL
                  FROM found
                 WHERE job.id = found.id AND found.status IN ('dead', 'cancelled') AND found.queued_copy IS NULL
                RETURNING job.id, pg_notify('background_jobs', 'new ' || job.kind) AS woken
            )
            SELECT found.status::text, restarted.id IS NOT NULL,
                   CASE WHEN found.status IN ('dead', 'cancelled') THEN found.queued_copy END
              FROM found LEFT JOIN restarted USING (id);
            RETURN;
        EXCEPTION WHEN unique_violation THEN
            -- A copy with its dedupe key was queued after our look. The next look sees it.
            IF try = 3 THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END $$;

-- An operator's cancel, of one job or of many: a queued one ends here, the worker of a running one is asked. Answers the
-- status before and after, NULL for a job that had ended already.
CREATE FUNCTION background_cancel_job(of_id bigint, why jsonb) RETURNS TABLE (was text, becomes text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
  SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT id, status FROM background_jobs WHERE id = of_id FOR UPDATE
    ), changed AS (
        UPDATE background_jobs AS job
           SET status = CASE WHEN found.status = 'queued' THEN 'cancelled' ELSE job.status END,
               finished_at = CASE WHEN found.status = 'queued' THEN clock_timestamp() END,
               error = why,
               cancel_requested_at = coalesce(job.cancel_requested_at, clock_timestamp())
          FROM found
         WHERE job.id = found.id AND found.status IN ('queued', 'running')
        RETURNING job.id, job.status, pg_notify('background_control', 'cancel') AS told
    )
    SELECT found.status::text, changed.status::text FROM found LEFT JOIN changed USING (id);
END $$;

-- Where one job stands: what keeps it from running, and what comes before it. Bounded: `before_ids` are the first of those
-- that wait for the same concurrency key and come before it, `ahead` counts the due jobs of its kind that a claim takes
-- first, of its own line where it is in one (migration 0011), both `at_most`.
CREATE FUNCTION background_job_standing(
    of_id bigint, at_most integer, OUT status text, OUT is_blocked boolean, OUT is_later boolean, OUT is_paused boolean,
    OUT live_workers bigint, OUT holder_id bigint, OUT before_ids bigint[], OUT ahead bigint
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
  SET enable_seqscan = off SET enable_bitmapscan = off SET max_parallel_workers_per_gather = 0 SET jit = off AS $$
#variable_conflict use_variable
DECLARE
    given background_jobs;
    first bigint[];
BEGIN
    SELECT * INTO given FROM background_jobs AS job WHERE job.id = of_id;
    status := given.status;
    IF status IS DISTINCT FROM 'queued' THEN
        RETURN;
    END IF;
    is_blocked := given.blocked;
    is_later := given.run_after > statement_timestamp();
    is_paused := EXISTS (SELECT FROM background_kinds AS k WHERE k.kind = given.kind AND k.paused_at IS NOT NULL);
    live_workers := (SELECT count(*) FROM background_workers AS w
                      WHERE w.lost_at IS NULL AND w.lease_until > clock_timestamp() AND given.kind = ANY (w.kinds));
    holder_id := (SELECT job.id FROM background_jobs AS job
                   WHERE job.status = 'running' AND job.concurrency_key = given.concurrency_key);
    -- A claim takes the best priority first, then what has been due for longest.
    first := ARRAY(
        SELECT due.id FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
         CROSS JOIN LATERAL (
               SELECT job.id, job.run_after FROM background_jobs AS job
                WHERE job.kind = given.kind AND job.priority = level.priority AND job.status = 'queued' AND NOT job.blocked
                  AND (job.organization_id IS NULL) = (given.organization_id IS NULL)
                  AND (given.organization_id IS NULL
                       OR job.organization_id IS NOT NULL AND job.organization_id COLLATE "C" = given.organization_id)
                  AND job.run_after <= statement_timestamp()
                  AND (level.priority < given.priority OR (job.run_after, job.id) < (given.run_after, given.id))
                ORDER BY job.run_after, job.id LIMIT at_most) AS due
         WHERE level.priority <= given.priority
         ORDER BY level.priority, due.run_after, due.id LIMIT at_most);
    ahead := cardinality(first);
    -- Those that are blocked, and those that no claim has come to yet.
    before_ids := ARRAY(
        SELECT job.id
          FROM (SELECT blocked.id, blocked.priority, blocked.run_after FROM background_jobs AS blocked
                 WHERE blocked.status = 'queued' AND blocked.blocked AND blocked.concurrency_key = given.concurrency_key
                   AND (blocked.priority, blocked.run_after, blocked.id) < (given.priority, given.run_after, given.id)
                 UNION ALL
                SELECT free.id, free.priority, free.run_after FROM background_jobs AS free
                 WHERE free.id = ANY (first) AND free.concurrency_key = given.concurrency_key) AS job
         ORDER BY job.priority, job.run_after, job.id LIMIT at_most);
END $$;
