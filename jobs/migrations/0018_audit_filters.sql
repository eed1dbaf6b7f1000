-- What was done by hand to one job or kind, by somebody, or of one sort. Who writes into the audit waits for a person, so an
-- entry may cost some index entries more. The texts are cut there: `jobs.control.record` takes a target of any length.
-- step: concurrently
CREATE INDEX CONCURRENTLY background_audit_target ON background_audit (left(target, 200), id);
-- step: concurrently
CREATE INDEX CONCURRENTLY background_audit_actor ON background_audit (left(actor, 200), id);
-- step: concurrently
CREATE INDEX CONCURRENTLY background_audit_action ON background_audit (left(action, 200), id);
-- step: concurrently
CREATE INDEX CONCURRENTLY background_audit_actor_action ON background_audit (left(actor, 200), left(action, 200), id);
-- The jobs of what was done to many, and that of a schedule that was run now. Without a list of entries to be sorted in later,
-- which every look would read.
-- step: concurrently
CREATE INDEX CONCURRENTLY background_audit_detail ON background_audit USING gin (detail jsonb_path_ops)
    WITH (fastupdate = off);

-- step: in one transaction
-- The newest entries below `before` that pass: of a job, what was done to it alone or with others, or made it.
CREATE FUNCTION background_find_audit(filter jsonb, before bigint, at_most integer)
  RETURNS SETOF background_audit LANGUAGE plpgsql STABLE
  SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET enable_seqscan = off
  SET max_parallel_workers_per_gather = 0 SET jit = off AS $$
DECLARE
    above     constant bigint := coalesce(before, 9223372036854775807);
    of_job    constant bigint := (filter ->> 'job_id')::bigint;
    of_target constant text := filter ->> 'target';
    of_actor  constant text := filter ->> 'actor';
    of_action constant text := filter ->> 'action';
    ids       bigint[];
BEGIN
    IF of_job IS NOT NULL THEN
        ids := ARRAY(SELECT entry.id FROM background_audit AS entry WHERE left(entry.target, 200) = 'job ' || of_job)
            || ARRAY(SELECT entry.id FROM background_audit AS entry
                      WHERE entry.detail @> jsonb_build_object('ids', jsonb_build_array(of_job)))
            || ARRAY(SELECT entry.id FROM background_audit AS entry
                      WHERE entry.detail @> jsonb_build_object('job', of_job));
    END IF;
    RETURN QUERY
        SELECT entry.* FROM background_audit AS entry
         WHERE entry.id < above
           AND (ids IS NULL OR entry.id = ANY (ids))
           AND (of_target IS NULL OR (left(entry.target, 200) = left(of_target, 200) AND entry.target = of_target))
           AND (of_actor IS NULL OR (left(entry.actor, 200) = left(of_actor, 200) AND entry.actor = of_actor))
           AND (of_action IS NULL OR (left(entry.action, 200) = left(of_action, 200) AND entry.action = of_action))
         ORDER BY entry.id DESC LIMIT at_most;
END $$;
