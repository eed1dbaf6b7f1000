-- Organisations take turns. Within one kind and priority, jobs that name an organisation stand in a line of that
-- organisation's, oldest first, and the lines are served one job after the other; what is left of a claim's slots then goes
-- to the oldest. A kind may bound how many jobs of one organisation run at once.

-- step: in one transaction
ALTER TABLE background_kinds ADD COLUMN IF NOT EXISTS max_per_organization integer; -- NULL: as many as there are slots
-- Counts for its organisation's bound while it runs; written by the claim.
ALTER TABLE background_jobs ADD COLUMN IF NOT EXISTS limited boolean NOT NULL DEFAULT false;

-- What claims walk, in place of background_jobs_claim: jobs of nobody and those in lines apart, so that a hundred thousand
-- of the ones are not walked over for the others.
-- step: concurrently
CREATE INDEX CONCURRENTLY background_jobs_claim_next
    ON background_jobs (kind, priority, (organization_id IS NULL), run_after, id)
    WHERE status = 'queued' AND NOT blocked;
-- The lines. In the order of the bytes: no locale's, which costs more and may change with the server's libraries.
-- step: concurrently
CREATE INDEX CONCURRENTLY background_jobs_lines
    ON background_jobs (kind, priority, organization_id COLLATE "C", run_after, id)
    WHERE status = 'queued' AND NOT blocked AND organization_id IS NOT NULL;
-- step: concurrently
CREATE INDEX CONCURRENTLY background_jobs_limited ON background_jobs (kind, organization_id COLLATE "C")
    WHERE status = 'running' AND limited;

-- step: in one transaction
DROP INDEX IF EXISTS background_jobs_claim;
ALTER INDEX background_jobs_claim_next RENAME TO background_jobs_claim;

-- Takes the right to claim of a line until the transaction ends: how many more of its jobs may run, or -1 where another
-- claim is deciding about it right now. The count has a snapshot of its own, from after the lock: it sees what the claim
-- before this one took.
CREATE FUNCTION background_hold_line(of_kind text, of_organization text, most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('oomph line ' || of_kind), hashtext(of_organization)) THEN
        RETURN -1;
    END IF;
    RETURN greatest(0, most - (SELECT count(*) FROM background_jobs AS busy
                                WHERE busy.kind = of_kind AND busy.organization_id COLLATE "C" = of_organization
                                  AND busy.status = 'running' AND busy.limited));
END $$;

-- Whose turn it is: which jobs a claim takes where more are due than it has slots, or where a bound counts. `places` are
-- the oldest of each kind and priority, of nobody and in lines apart, in the queue's order; all of them are locked.
--
-- Lines are walked in the order of their names, like a ring, from where the worker's last claim stopped, until enough of
-- them have a job that is due. The ring may be long, and all but one wait for tomorrow: of a thousand lines the walk stops,
-- and the next claim goes on there; what it cannot fill goes to the oldest. Where a bound counts, those are the lines of the
-- thousand oldest jobs that are due, as far as they have room: of more than a thousand of lines that have none, and as
-- many that wait for tomorrow, each claim passes a thousand. Several kinds, and the jobs of nobody, share the
-- slots of a priority alike; where one is left over, who was `served` last comes last.
CREATE FUNCTION background_take_turns(
    slots integer, places tid[], generations integer[], served text[], line_kinds text[], line_priorities smallint[],
    line_stops text[],
    OUT taken tid[], OUT of_generations integer[], OUT limits boolean[], OUT has_keys boolean, OUT contested bigint,
    OUT stop_kinds text[], OUT stop_priorities smallint[], OUT stops text[]
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    longest    constant integer := 1000; -- lines: some milliseconds
    is_nobodys boolean := false; -- not as a constant, for which the planner would not see the index
BEGIN
    WITH RECURSIVE oldest AS MATERIALIZED (
        SELECT given.place, given.generation, given.nth, job.kind::text AS kind, job.priority::smallint AS priority,
               job.organization_id IS NULL AS is_nobodys, job.concurrency_key IS NOT NULL AS has_key
          FROM unnest(places, generations) WITH ORDINALITY AS given (place, generation, nth)
          JOIN background_jobs AS job ON job.ctid = given.place
    ), lines AS MATERIALIZED (
        SELECT due.kind, due.priority, due.generation, k.max_per_organization AS most, stop.organization_id AS stop
          FROM (SELECT DISTINCT o.kind, o.priority, o.generation FROM oldest AS o WHERE NOT o.is_nobodys) AS due
          LEFT JOIN background_kinds AS k ON k.kind = due.kind
          LEFT JOIN unnest(line_kinds, line_priorities, line_stops) AS stop (kind, priority, organization_id)
                 ON stop.kind = due.kind AND stop.priority = due.priority
    ), walk AS (
        SELECT lines.kind, lines.priority, lines.most, lines.stop, lines.stop AS organization_id, false AS is_round,
               false AS is_due, 0 AS due, 0 AS nth
          FROM lines
        UNION ALL
        SELECT walk.kind, walk.priority, walk.most, walk.stop, next.organization_id, next.is_round, judged.is_due,
               walk.due + judged.is_due::integer, walk.nth + 1
          FROM walk
         CROSS JOIN LATERAL (
               (SELECT job.organization_id, job.run_after, walk.is_round FROM background_jobs AS job
                 WHERE job.kind = walk.kind AND job.priority = walk.priority
                   AND job.organization_id COLLATE "C" > walk.organization_id AND job.organization_id IS NOT NULL
                   AND job.status = 'queued' AND NOT job.blocked
                 ORDER BY job.organization_id COLLATE "C", job.run_after, job.id LIMIT 1)
               UNION ALL
               (SELECT job.organization_id, job.run_after, true FROM background_jobs AS job
                 WHERE NOT walk.is_round AND job.kind = walk.kind AND job.priority = walk.priority
                   AND job.organization_id IS NOT NULL AND job.status = 'queued' AND NOT job.blocked
                 ORDER BY job.organization_id COLLATE "C", job.run_after, job.id LIMIT 1)
               LIMIT 1) AS next
         CROSS JOIN LATERAL (
               SELECT next.run_after <= statement_timestamp()
                      AND (walk.most IS NULL
                           OR (SELECT count(*) FROM background_jobs AS busy
                                WHERE busy.kind = walk.kind AND busy.organization_id COLLATE "C" = next.organization_id
                                  AND busy.status = 'running' AND busy.limited) < walk.most) AS is_due) AS judged
         WHERE walk.due < slots AND walk.nth < longest
           AND (NOT next.is_round OR walk.stop IS NULL OR next.organization_id COLLATE "C" <= walk.stop)
    ), head AS MATERIALIZED (
        SELECT lines.kind, lines.priority, lines.most, job.organization_id, min(job.nth) AS nth
          FROM lines
         CROSS JOIN LATERAL (
               SELECT due.organization_id, row_number() OVER () AS nth
                 FROM (SELECT each.organization_id FROM background_jobs AS each
                        WHERE each.kind = lines.kind AND each.priority = lines.priority
                          AND (each.organization_id IS NULL) = is_nobodys AND each.status = 'queued' AND NOT each.blocked
                          AND each.run_after <= statement_timestamp()
                        ORDER BY each.run_after, each.id LIMIT longest) AS due) AS job
         WHERE lines.most IS NOT NULL
           AND EXISTS (SELECT FROM walk AS w
                        WHERE w.kind = lines.kind AND w.priority = lines.priority AND w.nth = longest AND w.due < slots)
         GROUP BY lines.kind, lines.priority, lines.most, job.organization_id
    ), line AS MATERIALIZED (
        SELECT walk.kind, walk.priority, walk.organization_id, walk.nth, walk.most, false AS is_head
          FROM walk WHERE walk.is_due
        UNION ALL
        (SELECT head.kind, head.priority, head.organization_id, head.nth, head.most, true
           FROM head
          WHERE NOT EXISTS (SELECT FROM walk AS w
                             WHERE w.is_due AND w.kind = head.kind AND w.priority = head.priority
                               AND w.organization_id COLLATE "C" = head.organization_id)
            AND (SELECT count(*) FROM background_jobs AS busy
                  WHERE busy.kind = head.kind AND busy.organization_id COLLATE "C" = head.organization_id
                    AND busy.status = 'running' AND busy.limited) < head.most
          ORDER BY head.priority, head.nth LIMIT slots)
    ), asked AS MATERIALIZED (
        SELECT line.kind, line.priority, line.organization_id, line.nth, line.is_head,
               ceil(slots::numeric / count(*) OVER (PARTITION BY line.kind, line.priority, line.is_head))::integer
                   AS share,
               CASE WHEN line.most IS NULL THEN slots
                    ELSE background_hold_line(line.kind, line.organization_id, line.most) END AS room
          FROM line
    ), found AS MATERIALIZED (
        SELECT asked.kind, asked.priority, asked.organization_id, asked.nth, asked.room, asked.is_head, due.place,
               due.has_key,
               row_number() OVER (PARTITION BY asked.kind, asked.priority, asked.organization_id
                                  ORDER BY due.run_after, due.id) AS round,
               row_number() OVER (PARTITION BY asked.kind, asked.organization_id
                                  ORDER BY asked.priority, due.run_after, due.id) AS of_room
          FROM asked
         CROSS JOIN LATERAL (
               SELECT job.ctid AS place, job.run_after, job.id, job.concurrency_key IS NOT NULL AS has_key
                 FROM background_jobs AS job
                WHERE job.kind = asked.kind AND job.priority = asked.priority
                  AND job.organization_id COLLATE "C" = asked.organization_id AND job.organization_id IS NOT NULL
                  AND job.status = 'queued' AND NOT job.blocked AND job.run_after <= statement_timestamp()
                ORDER BY job.run_after, job.id
                LIMIT greatest(0, least(asked.share, asked.room))
                  FOR UPDATE SKIP LOCKED) AS due
    ), candidate AS MATERIALIZED (
        SELECT found.place, found.has_key, found.kind, found.priority, found.organization_id, lines.generation,
               lines.most IS NOT NULL AS limited, found.is_head AS is_filling,
               array_position(served, found.kind) AS served_at,
               row_number() OVER (PARTITION BY found.kind, found.priority, found.is_head
                                  ORDER BY found.round, found.nth) AS turn
          FROM found JOIN lines ON lines.kind = found.kind AND lines.priority = found.priority
         WHERE found.of_room <= found.room
        UNION ALL
        SELECT oldest.place, oldest.has_key, oldest.kind, oldest.priority, NULL, oldest.generation, false, false,
               array_position(served, ''), row_number() OVER (PARTITION BY oldest.priority ORDER BY oldest.nth)
          FROM oldest WHERE oldest.is_nobodys
        UNION ALL
        SELECT oldest.place, oldest.has_key, oldest.kind, oldest.priority, NULL, oldest.generation, false, true, NULL,
               oldest.nth
          FROM oldest JOIN lines ON lines.kind = oldest.kind AND lines.priority = oldest.priority
         WHERE NOT oldest.is_nobodys AND lines.most IS NULL
           AND oldest.place NOT IN (SELECT f.place FROM found AS f)
    ), chosen AS MATERIALIZED (
        SELECT * FROM candidate AS c
         ORDER BY c.priority, c.is_filling, c.turn, c.served_at NULLS FIRST, c.kind LIMIT slots
    ), stopped AS (
        SELECT lines.kind, lines.priority,
               coalesce((SELECT c.organization_id FROM chosen AS c
                          WHERE c.kind = lines.kind AND c.priority = lines.priority AND c.organization_id IS NOT NULL
                            AND NOT c.is_filling
                          ORDER BY c.turn DESC LIMIT 1),
                        CASE WHEN NOT EXISTS (SELECT FROM asked AS a
                                               WHERE a.kind = lines.kind AND a.priority = lines.priority
                                                 AND NOT a.is_head)
                             THEN (SELECT w.organization_id FROM walk AS w
                                    WHERE w.kind = lines.kind AND w.priority = lines.priority
                                    ORDER BY w.nth DESC LIMIT 1) END,
                        lines.stop) AS organization_id
          FROM lines
    )
    SELECT array_agg(c.place), array_agg(c.generation), array_agg(c.limited), bool_or(c.has_key),
           (SELECT count(*) FROM asked AS a WHERE a.room < 0),
           (SELECT array_agg(s.kind) FROM stopped AS s), (SELECT array_agg(s.priority) FROM stopped AS s),
           (SELECT array_agg(s.organization_id) FROM stopped AS s)
      INTO taken, of_generations, limits, has_keys, contested, stop_kinds, stop_priorities, stops
      FROM chosen AS c;
END $$;

-- Where most of a claim's candidates cannot start because their key has a running job, there is a backlog of that key: what
-- follows them is marked as blocked with them. A claim alone marks as many as it has slots, and of a bounded line as many as
-- that has room for, one: ten thousand jobs of a key held up those behind them for ten thousand claims. The candidates, which
-- the caller has locked, are left to it. A thousand jobs are looked at, in the queues of the candidates, from these on.
CREATE FUNCTION background_park_behind(places tid[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    longest constant integer := 1000; -- jobs: some ten milliseconds, if all are marked
BEGIN
    WITH stuck AS MATERIALIZED (
        SELECT job.kind::text AS kind, job.priority::smallint AS priority, job.organization_id,
               job.organization_id IS NULL AS is_nobodys, job.run_after, job.id, job.concurrency_key
          FROM unnest(places) AS given (place) JOIN background_jobs AS job ON job.ctid = given.place
         WHERE job.concurrency_key IS NOT NULL
           AND EXISTS (SELECT 1 FROM background_jobs AS busy
                        WHERE busy.status = 'running' AND busy.concurrency_key = job.concurrency_key)
    ), held AS MATERIALIZED (
        -- FOR SHARE: the running job cannot end before the mark below commits, and its end sees the mark.
        SELECT holder.concurrency_key
          FROM (SELECT DISTINCT s.concurrency_key FROM stuck AS s
                 WHERE 2 * (SELECT count(*) FROM stuck) > cardinality(places)) AS key
         CROSS JOIN LATERAL (
               SELECT busy.concurrency_key FROM background_jobs AS busy
                WHERE busy.status = 'running' AND busy.concurrency_key = key.concurrency_key
                LIMIT 1 FOR SHARE SKIP LOCKED) AS holder
    ), queue AS MATERIALIZED (
        SELECT each.*, ceil(longest::numeric / count(*) OVER ())::integer AS share
          FROM (SELECT DISTINCT ON (s.kind, s.priority, s.organization_id) s.*
                  FROM stuck AS s JOIN held ON held.concurrency_key = s.concurrency_key
                 ORDER BY s.kind, s.priority, s.organization_id, s.run_after, s.id) AS each
    ), behind AS MATERIALIZED (
        SELECT job.ctid AS place
          FROM queue
         CROSS JOIN LATERAL (
               (SELECT next.ctid AS place, next.concurrency_key FROM background_jobs AS next
                 WHERE NOT queue.is_nobodys AND next.kind = queue.kind AND next.priority = queue.priority
                   AND next.organization_id COLLATE "C" = queue.organization_id AND next.organization_id IS NOT NULL
                   AND next.status = 'queued' AND NOT next.blocked AND next.run_after <= statement_timestamp()
                   AND (next.run_after, next.id) > (queue.run_after, queue.id)
                 ORDER BY next.run_after, next.id LIMIT queue.share)
               UNION ALL
               (SELECT next.ctid, next.concurrency_key FROM background_jobs AS next
                 WHERE queue.is_nobodys AND next.kind = queue.kind AND next.priority = queue.priority
                   AND (next.organization_id IS NULL) = queue.is_nobodys
                   AND next.status = 'queued' AND NOT next.blocked AND next.run_after <= statement_timestamp()
                   AND (next.run_after, next.id) > (queue.run_after, queue.id)
                 ORDER BY next.run_after, next.id LIMIT queue.share)) AS due
          JOIN background_jobs AS job ON job.ctid = due.place
         WHERE due.concurrency_key IN (SELECT h.concurrency_key FROM held AS h)
           AND job.concurrency_key = due.concurrency_key AND job.status = 'queued' AND NOT job.blocked
           AND job.ctid <> ALL (places)
           FOR UPDATE OF job SKIP LOCKED
    )
    UPDATE background_jobs AS job SET blocked = true FROM behind WHERE job.ctid = behind.place;
END $$;

-- Invariants 3 (charged once: the claim itself pays), 5 (one at a time per concurrency key) and 6 (a paused kind starts
-- nothing). One batch for one pool, by priority, then run_after, then id; where jobs in lines are among more than it can
-- take, they take turns. The kind's declaration decides the pool, so
-- a row that names another one still gets the isolation that its work needs. Of each concurrency key at most one job is
-- taken: the best of the batch, if no job of the key runs and no other claim is deciding about the key right now. What
-- stands behind a running job is marked as blocked, so that no later claim looks at it again; the trigger on
-- background_jobs lets the next one go when the running one ends. `again` counts what makes another claim worth while:
-- the parked, those whose key somebody else took or was deciding about since this statement began, and lines likewise.
--
-- The marks are how far this worker has claimed of nobody's jobs, by kind and priority. None up to them is looked at, nor
-- what has been due for longer than the reach, so the entries of finished jobs, which an old snapshot of anybody keeps in
-- the index, are not walked over by every claim.
--
-- The stops are where this worker's last claims stopped among the lines, and `served` those kinds whose lines had a turn
-- ('' for jobs of nobody), the last one last. New stops come back as rows without an id.
DROP FUNCTION background_claim(uuid, text, text[], integer, double precision, text[], smallint[], double precision[],
                               bigint[]);
CREATE FUNCTION background_claim(
    worker           uuid,
    of_pool          text,
    of_kinds         text[],
    slots            integer,
    reach            double precision DEFAULT 'infinity', -- seconds
    mark_kinds       text[] DEFAULT '{}',
    mark_priorities  smallint[] DEFAULT '{}',
    mark_run_afters  double precision[] DEFAULT '{}', -- seconds since 1970, which also say infinity
    mark_ids         bigint[] DEFAULT '{}',
    served           text[] DEFAULT '{}',
    stop_kinds       text[] DEFAULT '{}',
    stop_priorities  smallint[] DEFAULT '{}',
    stops            text[] DEFAULT '{}'
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
    limits      boolean[];
    has_keys    boolean;
    has_lines   boolean;
    has_limits  boolean;
    contested   bigint := 0;
    earliest    timestamptz := to_timestamp(date_part('epoch', statement_timestamp()) - reach);
BEGIN
    SELECT array_agg(candidate.place), array_agg(candidate.generation), bool_or(candidate.has_key),
           bool_or(candidate.has_line), bool_or(candidate.is_limited)
      INTO places, generations, has_keys, has_lines, has_limits
      FROM (SELECT due.place, coalesce(k.generation, 0) AS generation, due.has_key, NOT side.is_nobodys AS has_line,
                   NOT side.is_nobodys AND k.max_per_organization IS NOT NULL AS is_limited
              FROM unnest(of_kinds) AS known (kind)
              LEFT JOIN background_kinds AS k ON k.kind = known.kind
             CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
             CROSS JOIN (VALUES (true), (false)) AS side (is_nobodys)
              LEFT JOIN unnest(mark_kinds, mark_priorities, mark_run_afters, mark_ids)
                        AS mark (kind, priority, run_after, id)
                     ON mark.kind = known.kind AND mark.priority = level.priority AND side.is_nobodys
             -- Of lines of a bounded kind only whether there is a job: most of the others may have to wait.
             CROSS JOIN LATERAL (
                   SELECT job.ctid AS place, job.concurrency_key IS NOT NULL AS has_key,
                          job.priority, job.run_after, job.id
                     FROM background_jobs AS job
                    WHERE job.kind = known.kind AND job.priority = level.priority
                      AND (job.organization_id IS NULL) = side.is_nobodys AND job.status = 'queued'
                      AND NOT job.blocked AND job.run_after <= statement_timestamp()
                      AND (job.run_after, job.id)
                          > (coalesce(to_timestamp(mark.run_after), earliest), coalesce(mark.id, -9223372036854775808))
                    ORDER BY job.run_after, job.id
                    LIMIT CASE WHEN side.is_nobodys OR k.max_per_organization IS NULL THEN slots ELSE 1 END
                      FOR UPDATE SKIP LOCKED
                   ) AS due
             WHERE k.paused_at IS NULL
               AND EXISTS (SELECT 1 FROM background_workers AS w
                            WHERE w.id = worker AND w.lost_at IS NULL AND w.lease_until > clock_timestamp())
             ORDER BY due.priority, due.run_after, due.id) AS candidate;
    IF places IS NULL THEN
        RETURN;
    END IF;
    IF has_lines AND (has_limits OR cardinality(places) >= slots) THEN
        SELECT * INTO places, generations, limits, has_keys, contested, stop_kinds, stop_priorities, stops
          FROM background_take_turns(slots, places, generations, served, stop_kinds, stop_priorities, stops);
        RETURN QUERY
        SELECT contested, NULL::bigint, NULL::bigint, stop.kind, NULL::text, NULL::text, NULL::integer, NULL::integer,
               NULL::interval, stop.organization_id, NULL::text, stop.priority, NULL::double precision
          FROM unnest(stop_kinds, stop_priorities, stops) AS stop (kind, priority, organization_id);
        IF places IS NULL THEN
            RETURN;
        END IF;
    ELSE
        places := places[1:slots];
    END IF;
    IF NOT has_keys THEN
        RETURN QUERY
        WITH claimed AS (
            UPDATE background_jobs AS job
               SET status = 'running', pool = of_pool, claim = job.claim + 1, attempt = job.attempt + 1,
                   worker_id = worker, started_at = clock_timestamp(), finished_at = NULL, progress = NULL,
                   progress_note = NULL, generation = taken.generation, limited = coalesce(taken.limited, false)
              FROM unnest(places, generations, limits) AS taken (place, generation, limited)
             WHERE job.ctid = taken.place
            RETURNING job.*
        )
        SELECT contested, c.id, c.claim, c.kind::text, c.pool::text, c.payload::text, c.attempt::integer,
               c.max_attempts::integer, c.timeout::interval, c.organization_id, NULL::text, c.priority::smallint,
               date_part('epoch', c.run_after)
          FROM claimed AS c ORDER BY c.priority, c.run_after, c.id;
        RETURN;
    END IF;
    PERFORM background_park_behind(places);
    RETURN QUERY
    WITH placed AS MATERIALIZED (
        SELECT job.ctid AS place, job.concurrency_key, taken.generation, taken.limited,
               row_number() OVER (PARTITION BY job.concurrency_key
                                  ORDER BY job.priority, job.run_after, job.id) AS position
          FROM unnest(places, generations, limits) AS taken (place, generation, limited)
          JOIN background_jobs AS job ON job.ctid = taken.place
    ), decided AS MATERIALIZED (
        SELECT placed.place, placed.concurrency_key, placed.generation, placed.limited,
               CASE WHEN placed.concurrency_key IS NULL THEN 'free'
                    WHEN position = 1
                         AND NOT EXISTS (SELECT 1 FROM background_jobs AS busy
                                          WHERE busy.status = 'running'
                                            AND busy.concurrency_key = placed.concurrency_key)
                    THEN background_hold_key(placed.concurrency_key)
               END AS key
          FROM placed
    ), free AS MATERIALIZED (
        SELECT decided.place, decided.concurrency_key, decided.generation, decided.limited FROM decided WHERE key = 'free'
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
               progress_note = NULL, generation = free.generation, limited = coalesce(free.limited, false)
          FROM free
         WHERE job.ctid = free.place
        RETURNING job.*
    )
    SELECT contested + (SELECT count(*) FROM parked) + (SELECT count(*) FROM decided WHERE key <> 'free'), c.id,
           c.claim, c.kind::text, c.pool::text, c.payload::text, c.attempt::integer, c.max_attempts::integer,
           c.timeout::interval, c.organization_id, c.concurrency_key::text, c.priority::smallint,
           date_part('epoch', c.run_after)
      FROM (VALUES (1)) AS always (one) LEFT JOIN claimed AS c ON true
     ORDER BY c.priority, c.run_after, c.id;
END $$;

-- A job of a bounded line that ends makes room for the next: who waits in it is claimed now, and not at somebody's next look.
CREATE FUNCTION background_wake_line() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
                CROSS JOIN LATERAL (
                      SELECT FROM background_jobs AS job
                       WHERE job.kind = OLD.kind AND job.priority = level.priority
                         AND job.organization_id COLLATE "C" = OLD.organization_id AND job.organization_id IS NOT NULL
                         AND job.status = 'queued' AND NOT job.blocked AND job.run_after <= clock_timestamp()
                       LIMIT 1) AS waiting) THEN
        PERFORM pg_notify('background_jobs', 'earlier ' || OLD.kind); -- than jobs that were claimed meanwhile
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER background_jobs_wake_line AFTER UPDATE OF status ON background_jobs FOR EACH ROW
    WHEN (OLD.status = 'running' AND NEW.status <> 'running' AND OLD.limited)
    EXECUTE FUNCTION background_wake_line();

-- What waits in the queue, asked once a second by every worker: for each of these kinds of which anything waits, the
-- seconds until its first job is due (below zero: it is due), and whether its probe may go. Kinds that are paused, and
-- jobs that are blocked, wait for something else. What has been due for longer than the reach is not looked at.
--
-- The last row has no kind, and tells how many entries of the index were walked over for that, as PostgreSQL counts them:
-- a few for each kind, or all that an old snapshot of anybody keeps there.
CREATE OR REPLACE FUNCTION background_look(of_kinds text[], reach double precision DEFAULT 'infinity')
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
     CROSS JOIN (VALUES (true), (false)) AS side (is_nobodys)
     CROSS JOIN LATERAL (
           SELECT job.run_after FROM background_jobs AS job
            WHERE job.kind = known.kind AND job.priority = level.priority
              AND (job.organization_id IS NULL) = side.is_nobodys AND job.status = 'queued'
              AND NOT job.blocked AND job.run_after >= earliest AND job.run_after < 'infinity'
            ORDER BY job.run_after, job.id LIMIT 1
           ) AS first
     WHERE k.paused_at IS NULL OR (k.probe AND k.probe_job_id IS NULL)
     GROUP BY known.kind;
    RETURN QUERY SELECT NULL::text, NULL::double precision, NULL::boolean,
                        pg_stat_get_xact_tuples_returned('background_jobs_claim'::regclass) - before;
END $$;
