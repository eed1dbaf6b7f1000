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
-- The newest entries below `before` that pass, but for a job. Along an index that ends with the id, whatever the statistics
-- say of a table that people fill: it answers as soon as it has enough, where a sort reads all before.
CREATE FUNCTION background_find_audit(filter jsonb, before bigint, at_most integer)
  RETURNS SETOF background_audit LANGUAGE plpgsql STABLE
  SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET enable_seqscan = off
  SET enable_bitmapscan = off SET enable_sort = off SET max_parallel_workers_per_gather = 0 SET jit = off AS $$
DECLARE
    above     constant bigint := coalesce(before, 9223372036854775807);
    of_target constant text := filter ->> 'target';
    of_actor  constant text := filter ->> 'actor';
    of_action constant text := filter ->> 'action';
BEGIN
    RETURN QUERY
        SELECT entry.* FROM background_audit AS entry
         WHERE entry.id < above
           AND (of_target IS NULL OR (left(entry.target, 200) = left(of_target, 200) AND entry.target = of_target))
           AND (of_actor IS NULL OR (left(entry.actor, 200) = left(of_actor, 200) AND entry.actor = of_actor))
           AND (of_action IS NULL OR (left(entry.action, 200) = left(of_action, 200) AND entry.action = of_action))
         ORDER BY entry.id DESC LIMIT at_most;
END $$;

-- The same of a job: what was done to it alone or with others, or made it. They are few.
CREATE FUNCTION background_find_audit_of_job(job_id bigint, filter jsonb, before bigint, at_most integer)
  RETURNS SETOF background_audit LANGUAGE plpgsql STABLE
  SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET enable_seqscan = off
  SET max_parallel_workers_per_gather = 0 SET jit = off AS $$
DECLARE
    above constant bigint := coalesce(before, 9223372036854775807);
    ids   constant bigint[] :=
        ARRAY(SELECT entry.id FROM background_audit AS entry WHERE left(entry.target, 200) = 'job ' || job_id)
        || ARRAY(SELECT entry.id FROM background_audit AS entry
                  WHERE entry.detail @> jsonb_build_object('ids', jsonb_build_array(job_id)))
        || ARRAY(SELECT entry.id FROM background_audit AS entry
                  WHERE entry.detail @> jsonb_build_object('job', job_id));
BEGIN
    RETURN QUERY
        SELECT entry.* FROM background_audit AS entry
         WHERE entry.id = ANY (ids) AND entry.id < above
           AND (NOT filter ? 'target' OR entry.target = filter ->> 'target')
           AND (NOT filter ? 'actor' OR entry.actor = filter ->> 'actor')
           AND (NOT filter ? 'action' OR entry.action = filter ->> 'action')
         ORDER BY entry.id DESC LIMIT at_most;
END $$;
