-- For the rest of the transaction: no statement takes longer than this. Answers what the time is.
SELECT clock_timestamp(), set_config('statement_timeout', %(milliseconds)s::integer::text, true)
