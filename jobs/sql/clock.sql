-- Moments are those of the database, whatever the clock of a host says.
SELECT clock_timestamp()
