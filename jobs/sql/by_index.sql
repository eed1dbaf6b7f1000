-- For the rest of the transaction: find rows by their index, whatever the statistics of a table say that was empty a
-- minute ago, and give up what takes longer than this.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true), set_config('statement_timeout', %(milliseconds)s::integer::text, true)
