-- A job belongs to the trace of whoever enqueued it: the header `traceparent` of W3C Trace Context, and after a space
-- `tracestate`, where there is one. A plain text without a check: a domain's would rewrite the table, and a CHECK of the
-- table would read all of it here and be evaluated for every new version of a row. Who reads it takes what is valid.
ALTER TABLE background_jobs ADD COLUMN trace_context text;

-- As before, with one parameter more. Not beside the old one: a call by name that fits both is refused.
DROP FUNCTION background_enqueue(text, jsonb, text, integer, integer, interval, timestamptz, text, text, boolean, text);
CREATE FUNCTION background_enqueue(
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
