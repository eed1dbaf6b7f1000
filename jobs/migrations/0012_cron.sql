-- A schedule has a step, or a cron expression on the clock of a time zone.

ALTER TABLE background_schedules
    ALTER COLUMN every DROP NOT NULL,
    ADD COLUMN cron text,
    ADD COLUMN timezone text,    -- an IANA name; what it means is the worker's to know
    ADD CONSTRAINT background_schedules_grid
        CHECK ((every IS NULL) = (cron IS NOT NULL) AND (cron IS NULL) = (timezone IS NULL));

-- The release before knows steps alone. Where it declares one again, as after a roll-back, there is no expression any more.
CREATE FUNCTION background_step_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.cron := NULL;
    NEW.timezone := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER background_schedules_step_again BEFORE UPDATE OF every ON background_schedules FOR EACH ROW
    WHEN (OLD.every IS NULL AND NEW.every IS NOT NULL)
    EXECUTE FUNCTION background_step_again();
