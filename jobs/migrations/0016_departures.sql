-- When the last worker that knew a kind has gone: its jobs wait for a while for another, and are not at once of an unknown
-- kind. Not a column of background_kinds: a service may hold a row of that for minutes, and a worker that leaves can neither
-- wait for it nor go without a word. Here nobody locks anything but workers that leave, for milliseconds.
CREATE TABLE background_departures (
    kind text PRIMARY KEY,
    at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
