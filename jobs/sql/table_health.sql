-- Living and dead rows of our tables as the statistics have them, and when each was last vacuumed and analysed, by hand
-- or by autovacuum: the one with the most dead rows first.
SELECT s.relname::text, s.n_live_tup, s.n_dead_tup,
       date_part('epoch', clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum)),
       date_part('epoch', clock_timestamp() - greatest(s.last_analyze, s.last_autoanalyze)),
       current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean
           AND NOT EXISTS (SELECT FROM pg_options_to_table(c.reloptions)
                            WHERE option_name = 'autovacuum_enabled' AND NOT option_value::boolean)
  FROM pg_stat_user_tables AS s
  JOIN pg_class AS c ON c.oid = s.relid
 WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('background_jobs'))
   AND starts_with(s.relname, 'background_')
 ORDER BY s.n_dead_tup DESC, s.relname
