-- Finished jobs go after a time: per status, and per kind where its declaration says so.

-- A kind's `Task(retention=...)`: NULL leaves it to the worker's settings, zero keeps for ever.
ALTER TABLE background_kinds
    ADD COLUMN keep_succeeded interval,
    ADD COLUMN keep_dead      interval,
    ADD COLUMN keep_cancelled interval;

-- How far the walk over the jobs has come, which removes them; the one row is made by the first who walks. No index on
-- finished_at: every job would pay for it. Ids nearly follow the time, and the primary key is there.
CREATE TABLE background_retention (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    worker_id  uuid NOT NULL,                -- whose walk it is, until
    held_until timestamptz NOT NULL,
    position   bigint NOT NULL DEFAULT 0,    -- this lap has looked at all jobs up to this id
    lowest     bigint,                       -- the first job that this lap has kept
    start      bigint NOT NULL DEFAULT 0,    -- where the lap began: below it the lap before has kept nothing
    whole_at   timestamptz NOT NULL DEFAULT clock_timestamp(), -- the last lap from the very first id began
    removed    bigint NOT NULL DEFAULT 0     -- jobs, since the first walk
) WITH (fillfactor = 50);
