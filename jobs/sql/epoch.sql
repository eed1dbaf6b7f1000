-- The clock of the database, in seconds since 1970.
SELECT date_part('epoch', clock_timestamp())
