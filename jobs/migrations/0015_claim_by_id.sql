-- A job that is committed by itself is named to the workers, so that one with nothing else to do claims it by its id, and
-- need not look which jobs of which kinds are due: see jobs/sql/claim_named.sql.

-- step: in one transaction
-- A committed job wakes who knows its kind, however it was written. The payload is `one`, its id and its kind, or, of
-- several rows, `new` or `many` and the kind. PostgreSQL folds equal ones into one: of a thousand inserts of one
-- transaction the first three are named and the others are not. What has a concurrency key may have to wait.
CREATE OR REPLACE FUNCTION background_notify_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    named integer := coalesce(nullif(current_setting('oomph.named', true), ''), '0');
    total bigint := (SELECT count(*) FROM inserted);
BEGIN
    IF total = 1 AND named < 3 THEN
        PERFORM pg_notify('background_jobs',
                          CASE WHEN concurrency_key IS NULL THEN 'one ' || id || ' ' ELSE 'new ' END || kind),
                set_config('oomph.named', (named + 1)::text, true)
           FROM inserted WHERE status = 'queued' AND run_after <= clock_timestamp();
    ELSE
        PERFORM pg_notify('background_jobs', CASE WHEN total > 20 THEN 'many ' ELSE 'new ' END || kind)
           FROM inserted WHERE status = 'queued' AND run_after <= clock_timestamp();
    END IF;
    RETURN NULL;
END $$;
