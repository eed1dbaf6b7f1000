-- For the rest of this transaction, no wait for a lock is longer.
SELECT set_config('lock_timeout', %(milliseconds)s::integer::text, true)
