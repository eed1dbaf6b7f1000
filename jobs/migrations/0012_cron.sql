-- A schedule has a step, or a cron expression on the clock of a time zone.

ALTER TABLE background_schedules
    ALTER COLUMN every DROP NOT NULL,
    ADD COLUMN cron text,
    ADD COLUMN timezone text,    -- an IANA name; what it means is the worker's to know
    ADD CONSTRAINT background_schedules_grid
        CHECK ((every IS NULL) = (cron IS NOT NULL) AND (cron IS NULL) = (timezone IS NULL));
