-- What a job that is enqueued by itself costs the database beyond its row.

-- The queued jobs of a key. It is also what refuses a key that is too long for an index where it is written, and not where
-- a claim meets it: it is as wide as the widest of those that the job comes into later.
-- step: concurrently
CREATE INDEX CONCURRENTLY background_jobs_keyed ON background_jobs (concurrency_key, priority, run_after, id)
    WHERE status = 'queued' AND concurrency_key IS NOT NULL;

-- step: in one transaction
-- A committed job wakes who knows its kind, however it was written. The payload is `one`, its id and its kind; of what has
-- a concurrency key and may have to wait, and of what comes after the first two rows of a statement, it is `new`, or `many`
-- where the statement wrote more than twenty, and the kind. PostgreSQL folds equal ones into one: of a thousand inserts of
-- one transaction, rows of the first three are named. They are counted only where a statement wrote more than two: that
-- costs a single insert more than all else here.
CREATE OR REPLACE FUNCTION background_notify_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    named integer := coalesce(nullif(current_setting('oomph.named', true), ''), '0');
    found bigint;
BEGIN
    PERFORM pg_notify('background_jobs',
                      CASE WHEN named < 3 AND concurrency_key IS NULL THEN 'one ' || id || ' ' ELSE 'new ' END || kind),
            set_config('oomph.named', (named + 1)::text, true)
       FROM inserted WHERE status = 'queued' AND run_after <= clock_timestamp() LIMIT 2;
    GET DIAGNOSTICS found = ROW_COUNT;
    IF found = 2 THEN
        PERFORM pg_notify('background_jobs', CASE WHEN total > 20 THEN 'many ' ELSE 'new ' END || kind)
           FROM (SELECT kind, count(*) OVER () AS total FROM inserted
                  WHERE status = 'queued' AND run_after <= clock_timestamp()) AS due
          WHERE total > 2;
    END IF;
    RETURN NULL;
END $$;

-- PostgreSQL parses a table's own CHECKs anew for each statement that writes a row of it. A domain's it parses once, but to
-- make one of a column builds its partial indexes anew, while nobody can write. So whoever takes keys from somebody checks
-- them: `jobs.enqueue`, and what other languages call, below. What is written by hand is only refused what no index holds.
ALTER TABLE background_jobs
    DROP CONSTRAINT background_jobs_dedupe_key_check,
    DROP CONSTRAINT background_jobs_concurrency_key_check;

-- As before, with the lengths of the keys.
CREATE OR REPLACE FUNCTION background_enqueue(
    kind            text,
    payload         jsonb DEFAULT '{}',
    pool            text DEFAULT NULL,
    priority        integer DEFAULT NULL,
    max_attempts    integer DEFAULT NULL,
    timeout         interval DEFAULT NULL,
    run_after       timestamptz DEFAULT NULL,
    organization_id text DEFAULT NULL,
    dedupe_key      text DEFAULT NULL,
    dedupe_active   boolean DEFAULT false,
    concurrency_key text DEFAULT NULL,
    trace_context   text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    declared background_kinds;
    job_id   bigint;
BEGIN
    SELECT * INTO declared FROM background_kinds AS k WHERE k.kind = background_enqueue.kind;
    IF coalesce(background_enqueue.pool, declared.pool) IS NULL THEN
        RAISE EXCEPTION 'background_enqueue: no worker has declared kind %: if it is not misspelt, name its pool (agent, ingest or system)',
            background_enqueue.kind USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF octet_length(background_enqueue.payload::text) > 1048576 THEN
        RAISE EXCEPTION 'background_enqueue: the payload of kind % has % bytes; 1048576 are allowed',
            background_enqueue.kind, octet_length(background_enqueue.payload::text)
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    IF length(background_enqueue.dedupe_key) NOT BETWEEN 1 AND 500
       OR length(background_enqueue.concurrency_key) NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION 'background_enqueue: dedupe_key and concurrency_key must have 1 to 500 characters'
            USING ERRCODE = 'check_violation';
    END IF;
    INSERT INTO background_jobs (kind, payload, pool, priority, max_attempts, timeout, run_after, organization_id,
                                 dedupe_key, dedupe_active, concurrency_key, trace_context)
    SELECT background_enqueue.kind, background_enqueue.payload,
           coalesce(background_enqueue.pool, declared.pool),
           coalesce(background_enqueue.priority, declared.priority, 1),
           coalesce(background_enqueue.max_attempts, declared.max_attempts, 5),
           coalesce(background_enqueue.timeout, declared.timeout, interval '5 minutes'),
           coalesce(background_enqueue.run_after, now()),
           background_enqueue.organization_id, background_enqueue.dedupe_key,
           background_enqueue.dedupe_active, background_enqueue.concurrency_key,
           left(background_enqueue.trace_context, 700) -- a hint: too long a one refuses nothing
     WHERE NOT (background_enqueue.dedupe_active AND EXISTS (
               SELECT 1 FROM background_jobs AS active
                WHERE active.kind = background_enqueue.kind AND active.dedupe_key = background_enqueue.dedupe_key
                  AND active.status IN ('queued', 'running')))
    ON CONFLICT DO NOTHING
    RETURNING id INTO job_id;
    IF job_id IS NULL AND background_enqueue.dedupe_key IS NULL THEN
        RAISE EXCEPTION 'background_enqueue: a job of kind % was not written although it has no dedupe key: the id sequence '
            'of background_jobs is behind its rows, or a trigger or policy of yours refuses them', background_enqueue.kind
            USING ERRCODE = 'unique_violation';
    END IF;
    RETURN job_id;
END $$;

-- As before, with those that are queued and not blocked.
CREATE OR REPLACE FUNCTION background_active_of_key(of_key text, at_most integer) RETURNS SETOF bigint LANGUAGE sql STABLE
  SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
  SET enable_mergejoin = off SET jit = off AS $$
    (SELECT job.id FROM background_jobs AS job WHERE job.status = 'running' AND job.concurrency_key = of_key)
    UNION
    (SELECT job.id FROM background_jobs AS job WHERE job.status = 'queued' AND job.concurrency_key = of_key
      ORDER BY job.priority, job.run_after, job.id LIMIT at_most)
    UNION
    (SELECT job.id FROM background_kinds AS k
      CROSS JOIN LATERAL (SELECT each.id FROM background_jobs AS each
                           WHERE each.kind = k.kind AND each.dedupe_key = of_key AND each.status IN ('queued', 'running')
                           LIMIT at_most) AS job
      LIMIT at_most)
$$;
