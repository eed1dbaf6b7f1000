-- For the statements of a lane, each of which has one right plan, also while the tables are empty; see background_claim.
SELECT set_config('plan_cache_mode', 'force_generic_plan', false), set_config('jit', 'off', false),
       set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false),
       set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false)
