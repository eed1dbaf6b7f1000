-- What background_claim sets for its statements, which their plans depend on; no row where there is no such function.
SELECT split_part(setting, '=', 1), substr(setting, strpos(setting, '=') + 1)
  FROM pg_proc AS p CROSS JOIN unnest(p.proconfig) AS setting
 WHERE p.oid = to_regproc('background_claim')
