-- For the rest of the transaction: nothing is written where somebody only looks, and no statement takes longer than this.
-- Answers what the time is.
SELECT clock_timestamp(), set_config('statement_timeout', %(milliseconds)s::integer::text, true),
       set_config('transaction_read_only', %(read_only)s::boolean::text, true)
