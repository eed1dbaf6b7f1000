-- The journal of a chaos run. Its rows are written in the transactions that they tell of, so they are the truth, and
-- pg_xact_commit_timestamp(xid) says when it became visible.

CREATE TABLE chaos_changes (
    seq bigint GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    job_id bigint, kind text, old_status text, status text, old_claim bigint, claim bigint,
    old_attempt integer, attempt integer, max_attempts integer, old_worker_id uuid, worker_id uuid,
    concurrency_key text, dedupe_key text, dedupe_active boolean, schedule text, occurrence timestamptz,
    told_by text, result_claim bigint, -- which claim the row's progress and its result say that they are of
    writer text NOT NULL DEFAULT current_setting('application_name') || ' ' || pg_backend_pid()
);
CREATE TABLE chaos_kinds (
    seq bigint GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind text, paused boolean, probe boolean, probe_job_id bigint, generation integer, kill_streak integer
);
CREATE TABLE chaos_leases (
    seq bigint GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    worker_id uuid, pid integer, lease_until timestamptz, lost boolean, deleted boolean
);
-- What handlers write, through connections of their own. `mode` is coroutine, thread or child.
CREATE TABLE chaos_diary (
    seq bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
    job_id bigint, claim bigint, pid integer, mode text, event text
);
CREATE TABLE chaos_effects (job_id bigint, claim bigint);  -- written with complete_in: exactly once

CREATE FUNCTION chaos_note_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    job background_jobs := coalesce(NEW, OLD);
BEGIN
    INSERT INTO chaos_changes (job_id, kind, old_status, status, old_claim, claim, old_attempt, attempt, max_attempts,
                               old_worker_id, worker_id, concurrency_key, dedupe_key, dedupe_active, schedule, occurrence,
                               told_by, result_claim)
    VALUES (job.id, job.kind, OLD.status, NEW.status, OLD.claim, job.claim, OLD.attempt, job.attempt, job.max_attempts,
            OLD.worker_id, job.worker_id, job.concurrency_key, job.dedupe_key, job.dedupe_active, job.schedule,
            job.occurrence, job.progress_note, (job.result ->> 'claim')::bigint);
    RETURN NULL;
END $$;
-- Every update, also one that changes nothing: a second outcome or a late progress is a write that must not be.
CREATE TRIGGER chaos_note_change AFTER INSERT OR UPDATE OR DELETE ON background_jobs
    FOR EACH ROW EXECUTE FUNCTION chaos_note_change();

CREATE FUNCTION chaos_note_kind() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_kinds (kind, paused, probe, probe_job_id, generation, kill_streak)
    VALUES (NEW.kind, NEW.paused_at IS NOT NULL, NEW.probe, NEW.probe_job_id, NEW.generation, NEW.kill_streak);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_note_kind AFTER INSERT OR UPDATE ON background_kinds
    FOR EACH ROW EXECUTE FUNCTION chaos_note_kind();

CREATE FUNCTION chaos_note_lease() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    worker background_workers := coalesce(NEW, OLD);
BEGIN
    INSERT INTO chaos_leases (worker_id, pid, lease_until, lost, deleted)
    VALUES (worker.id, worker.pid, worker.lease_until, worker.lost_at IS NOT NULL, NEW.id IS NULL);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_note_lease AFTER INSERT OR UPDATE OR DELETE ON background_workers
    FOR EACH ROW EXECUTE FUNCTION chaos_note_lease();
