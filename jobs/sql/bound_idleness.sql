-- A transaction of a worker that no longer says anything is ended by the server, and its locks with it.
SELECT set_config('idle_in_transaction_session_timeout', %(milliseconds)s::integer::text, true)
