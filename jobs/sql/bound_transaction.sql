-- A transaction of a worker that no longer says anything is ended by the server, and its locks with it; and it waits for
-- nobody else's locks for long: a service may hold a copy of a dedupe key in a transaction of minutes.
SELECT set_config('idle_in_transaction_session_timeout', %(idle_ms)s::integer::text, true),
       set_config('lock_timeout', %(lock_ms)s::integer::text, true)
