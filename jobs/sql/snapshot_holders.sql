-- Who keeps dead rows of this database from being removed, the oldest first, and how many sessions hide from us: of
-- another role's session only members of pg_read_all_stats see more than that it is there.
WITH holder AS (
    SELECT 'session' AS what, a.pid, a.usename::text AS owner, a.application_name AS name, a.state,
           date_part('epoch', clock_timestamp() - a.xact_start) AS seconds,
           greatest(age(a.backend_xmin), age(a.backend_xid)) AS transactions
      FROM pg_stat_activity AS a
     WHERE (a.datname = current_database() OR a.datname IS NULL)
       AND a.pid <> pg_backend_pid() AND a.backend_type <> 'autovacuum worker'
    UNION ALL
    SELECT 'prepared transaction', NULL, p.owner::text, p.gid, NULL,
           date_part('epoch', clock_timestamp() - p.prepared), age(p.transaction)
      FROM pg_prepared_xacts AS p
     WHERE p.database = current_database()
    UNION ALL
    SELECT 'replication slot', s.active_pid, NULL, s.slot_name::text, NULL, NULL, age(s.xmin)
      FROM pg_replication_slots AS s
)
SELECT oldest.what, oldest.pid, oldest.owner, oldest.name, oldest.state, oldest.seconds, oldest.transactions,
       (SELECT count(*) FROM pg_stat_activity AS a
         WHERE a.datname = current_database() AND a.backend_type IS NULL)
  FROM (VALUES (1)) AS always (one)
  LEFT JOIN (SELECT * FROM holder WHERE holder.transactions IS NOT NULL
              ORDER BY holder.transactions DESC, holder.seconds DESC LIMIT 1) AS oldest ON true
