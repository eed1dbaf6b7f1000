-- What the server is, and how many more sessions it lets us have: the smallest of its own limit, the database's and the
-- role's. Reads no table of ours: it is asked before anybody knows whether there are any.
SELECT current_setting('server_version_num')::integer,
       current_setting('server_version'),
       pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean,
       to_regclass('background_migrations') IS NOT NULL,
       to_regclass('background_jobs') IS NOT NULL,
       least(
           current_setting('max_connections')::bigint
               - CASE WHEN r.rolsuper THEN 0
                      ELSE current_setting('superuser_reserved_connections')::bigint
                           + coalesce(current_setting('reserved_connections', true)::bigint, 0) END
               - (SELECT sum(numbackends) FROM pg_stat_database),
           nullif(d.datconnlimit, -1) - (SELECT numbackends FROM pg_stat_database WHERE datid = d.oid),
           nullif(r.rolconnlimit, -1) - (SELECT count(*) FROM pg_stat_activity WHERE usesysid = r.oid)
       )
  FROM pg_database AS d, pg_roles AS r
 WHERE d.datname = current_database() AND r.rolname = current_user
