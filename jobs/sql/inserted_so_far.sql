-- How many jobs were ever written, as PostgreSQL counts them anyway; a second late, those of rolled back transactions too.
SELECT pg_stat_get_tuples_inserted('background_jobs'::regclass)
